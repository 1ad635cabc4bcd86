"""A stage in virtual time does what the client does: the same plans through `drive` and through `virtual`."""

from collections.abc import Sequence
from typing import Any

import pytest
from fakes import virtual as fake
from fakes.streams import paced
from hypothesis import given, settings, strategies as st

from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.drive.run import Stop, drive_stage as driven_stage
from loadgen.emulator import virtual
from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.profile import Profile
from loadgen.emulator.virtual import CLOSE_S, WIRE_S, drive_stage
from loadgen.emulator.virtual_process import Process, Progress, Watch
from loadgen.errors import UserError
from loadgen.records import Request, Run, Sample, Scrape, StageMark, StagePlan, StageSpec

STEP_S = 0.005
SERVICE_S, TOKENS = 0.5, 100  # one token a step
WIRES_S = 2 * WIRE_S + CLOSE_S


def arm() -> Emulated:
    """An engine whose step always takes STEP_S, whatever is in it."""
    profile = Profile.model_validate(
        {
            "name": "even",
            "source": "planted",
            "front_s": WIRE_S,
            "model": {"name": "m", "layers": 1, "kv_heads": 1, "head_dim": 1, "weight_bytes": 0, "max_model_len": 4096},
            "memory": {"kv_cache_bytes": 4 * 17 * 4096},
            "step": {
                "fixed_s": STEP_S,
                "weight_bandwidth_bytes_per_s": 1,
                "attention_bandwidth_bytes_per_s": 1e30,
            },
            "formats": {"bfloat16": {"backend": "EVEN"}},
        }
    )
    return emulated(profile, {})


def request(
    index: int, due_s: float | None = None, after: Sequence[int] = (), think_s: float = 0.0, tokens: int = TOKENS
) -> Request:
    runs = (Run(f"u:{index}", 4),)
    return Request(
        index=index, due_s=due_s, runs=runs, output_tokens=tokens, after=tuple(after) or None, think_s=think_s
    )


def stage(requests: Sequence[Request], warmup: Sequence[Request] = (), **spec: Any) -> StagePlan:
    role = "saturated" if "concurrency" in spec else "open_loop"
    return StagePlan(spec=StageSpec(name="s", role=role, **spec), warmup=tuple(warmup), requests=tuple(requests))


def simulated(
    plan: StagePlan, watch: Watch | None = None, origin_s: float = 0.0
) -> tuple[list[Sample], list[StageMark], Process]:
    process = Process(arm(), seed=(1,), watch=watch)
    process.begin(origin_s, 0.25)
    samples, marks = drive_stage(plan, process, salt="x", origin_s=origin_s)
    return samples, marks, process


def driven(plan: StagePlan) -> tuple[list[Sample], list[StageMark]]:
    samples: list[Sample] = []
    marks: list[StageMark] = []

    async def main(loop: fake.VirtualLoop) -> None:
        loop.server = fake.Server(lambda *_: fake.Script(paced(SERVICE_S - 0.2, 0.1, 3, output_tokens=TOKENS)))
        clock = Clock(loop.time, 0.0)
        async with Client(base_url="http://srv", endpoint="completions", clock=clock) as client:
            await driven_stage(
                plan,
                client=client,
                clock=clock,
                body_of=lambda _: b"",
                sink=samples.append,
                marks=marks.append,
                stop=Stop(),
            )

    fake.run(main)
    return samples, marks


def sent(samples: Sequence[Sample]) -> dict[tuple[bool, int], tuple[float, float | None]]:
    return {(s.warmup, s.index): (s.sent_s, s.due_s) for s in samples}


# Every instant lies on a grid of 0.1 s, more than eight requests gain from steps and wires; a duration lies between.
TENTHS = st.integers(0, 30).map(lambda tenths: tenths / 10)


@st.composite
def plans(draw: st.DrawFn) -> StagePlan:
    closed = draw(st.booleans())
    count = draw(st.integers(1, 8))
    due = sorted(draw(st.lists(TENTHS, min_size=count, max_size=count)))
    requests = []
    for index in range(count):
        after = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        own = None if closed or (after and draw(st.booleans())) else due[index]
        think_s = draw(TENTHS) if after else 0.0
        requests.append(request(index, own, sorted(after), think_s))
    warmup = [request(index) for index in range(draw(st.integers(0, 3)))]
    spec: dict[str, Any] = {"concurrency": draw(st.integers(1, 4))} if closed else {}
    if draw(st.booleans()):
        spec["duration_s"] = draw(st.integers(1, 25)) / 10 + 0.05
    return stage(requests, warmup, **spec)


@settings(max_examples=50, deadline=None)
@given(plans())
def test_it_sends_and_counts_what_the_client_does(plan: StagePlan) -> None:
    samples, marks, _ = simulated(plan)
    real_samples, real_marks = driven(plan)
    warmed_s, real_warmed_s = (next(m.started_s for m in found if not m.warmup) for found in (marks, real_marks))

    def since(found: Sequence[Sample], start_s: float) -> dict[tuple[bool, int], tuple[float, float]]:
        return {
            key: (at_s - (0 if key[0] else start_s), -1 if due_s is None else due_s - (0 if key[0] else start_s))
            for key, (at_s, due_s) in sent(found).items()
        }

    near, real = since(samples, warmed_s), since(real_samples, real_warmed_s)
    assert near.keys() == real.keys()
    for key, instants in near.items():
        assert instants == pytest.approx(real[key], abs=0.048)
    for mark, real_mark in zip(marks, real_marks, strict=True):
        counts = (mark.warmup, mark.planned, mark.sent, mark.unsent, mark.ok, mark.failed, mark.stopped)
        assert counts == (
            *(real_mark.warmup, real_mark.planned, real_mark.sent, real_mark.unsent),
            *(real_mark.ok, real_mark.failed, real_mark.stopped),
        )
        lasted_s, real_s = mark.ended_s - mark.started_s, real_mark.ended_s - real_mark.started_s
        assert lasted_s == pytest.approx(real_s, abs=0.048)


def test_a_sample_is_what_the_wire_makes_of_the_engines_steps() -> None:
    (sample,), (mark,), _ = simulated(stage([request(0, 1.0, tokens=3)]), origin_s=100.0)
    assert (sample.due_s, sample.sent_s) == (pytest.approx(1.0), pytest.approx(1.0))
    first_s = 1.0 + 2 * WIRE_S + STEP_S
    assert sample.events_s == pytest.approx([first_s, first_s + STEP_S, first_s + 2 * STEP_S])
    assert (sample.first_byte_s, sample.end_s) == (sample.events_s[0], sample.events_s[-1] + CLOSE_S)
    assert (sample.prompt_tokens, sample.output_tokens, sample.cached_tokens) == (4, 3, None)
    assert mark.started_s == 0.0
    assert mark.ended_s == pytest.approx(sample.end_s)


def test_what_arrives_while_a_step_runs_is_in_the_next_one() -> None:
    samples, _, _ = simulated(stage([request(0, 0.0, tokens=3), request(1, WIRE_S, tokens=1)]))
    second = next(sample for sample in samples if sample.index == 1)
    assert second.events_s[0] == pytest.approx(WIRE_S + 2 * STEP_S + WIRE_S)


def test_a_cap_lets_requests_go_in_order_of_time_not_of_planning() -> None:
    plan = stage(
        [request(0, 0.0, tokens=1), request(1, 50.0), request(2, 50.1), request(3, after=[0])], limit_per_s=1.0
    )
    samples, _, _ = simulated(plan)
    when = {sample.index: sample.sent_s for sample in samples}
    assert when == pytest.approx({0: 0.0, 3: 1.0, 1: 50.0, 2: 51.0})
    late = {sample.index: sample.lag_s for sample in samples}
    assert late[2] == pytest.approx(0.9)


def test_warm_up_and_stage_share_the_cap_and_time_runs_out_in_its_line() -> None:
    plan = stage([request(n) for n in range(9)], [request(0, tokens=1)], concurrency=9, limit_per_s=2.0, duration_s=1.2)
    samples, (_, mark), _ = simulated(plan)
    assert [s.sent_s for s in samples if not s.warmup] == pytest.approx([0.5, 1.0])
    assert (mark.sent, mark.unsent, mark.stopped) == (2, 7, "duration")


def test_the_account_is_read_at_even_intervals_on_the_blocks_clock() -> None:
    _, _, process = simulated(stage([request(0, 0.9)]), origin_s=7.3)
    instants = [scrape.at_s for scrape in process.scrapes]
    assert instants == pytest.approx([0.25 * n for n in range(len(instants))])
    busy = {scrape.at_s for scrape in process.scrapes if scrape.engines[0].values["running"]}
    assert min(busy) == pytest.approx(1.0)
    assert max(busy) == pytest.approx(1.25)


class Stops(Watch):
    """Asks to stop at the first reading after `at_s`."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.parts: list[Progress] = []

    def begins(self, part: Progress) -> None:
        self.parts.append(part)

    def scraped(self, scrape: Scrape) -> None:
        self.stop_asked = self.stop_asked or scrape.at_s >= self.at_s


@pytest.mark.parametrize("spec", [{"concurrency": 2}, {}])
def test_who_stops_it_gets_exact_accounts_of_what_was_in_flight(spec: dict[str, Any]) -> None:
    requests = [request(n, 0.3 * n) for n in range(9)] + [request(9, after=[8])]
    watch = Stops(0.75)
    samples, (mark,), process = simulated(stage(requests, **spec), watch)
    stopped = [sample for sample in samples if sample.failure]
    assert [sample.failure.kind for sample in stopped if sample.failure] == ["stopped"] * 2
    assert {sample.end_s for sample in stopped} == {mark.ended_s}
    assert 0.75 <= mark.ended_s < 0.8
    assert (mark.planned, mark.sent, mark.ok, mark.failed) == (10, len(samples), len(samples) - 2, 2)
    assert (mark.unsent, mark.stopped) == (10 - len(samples), "interrupted")
    assert all(sample.events_s[-1] <= sample.end_s for sample in stopped)
    assert not process.model.busy
    assert process.scrapes[-1].engines[0].values["running"] > process.tally.gauges["running"] == 0
    assert [(part.planned, part.done, part.failed) for part in watch.parts] == [(10, len(samples), 2)]


def test_who_stops_the_warm_up_stops_the_stage() -> None:
    samples, marks, _ = simulated(stage([request(0)], [request(0)], concurrency=1), Stops(0.25))
    assert [(mark.warmup, mark.stopped, mark.failed) for mark in marks] == [(True, "interrupted", 1)]
    assert len(samples) == 1


def test_a_request_that_the_engine_could_never_hold_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UserError, match=r"stage s: a request of 4,104 tokens: profile even serves at most 4,096"):
        simulated(stage([request(0), request(1, tokens=4100)], concurrency=1))


def test_the_same_seed_gives_the_same_stage() -> None:
    plan = stage([request(n, 0.1 * n) for n in range(5)])
    assert simulated(plan)[:2] == simulated(plan)[:2]


def test_what_is_shared_with_drive_is_the_same() -> None:
    from loadgen.drive import run

    assert virtual.WARMUP_STREAMS == run.WARMUP_STREAMS
