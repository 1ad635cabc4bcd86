"""Stages in virtual time: what is sent when, what is counted, how a stage is ended early."""

import asyncio
import gc
import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import asyncio_throttle.throttler
import pytest
from fakes import virtual
from fakes.streams import paced, response

from loadgen.clock import Clock
from loadgen.drive import health
from loadgen.drive.bodies import Bodies
from loadgen.drive.client import Client
from loadgen.drive.pacing import Cap, Gate
from loadgen.drive.run import Progress, Stop, drive_stage
from loadgen.errors import ExperimentError
from loadgen.records import Health, Request, Run, Sample, StageMark, StagePlan, StageSpec

SERVICE_S = 0.5  # 0.3 to the first token, two more in steps of 0.1


def good(*_: object) -> virtual.Script:
    return virtual.Script(paced(0.3, 0.1, 3))


def request(
    index: int, due_s: float | None = None, after: int | tuple[int, ...] | None = None, think_s: float = 0.0
) -> Request:
    before = (after,) if isinstance(after, int) else after
    runs = (Run(str(index), 4),)
    return Request(index=index, due_s=due_s, runs=runs, output_tokens=3, after=before, think_s=think_s)


def stage(requests: Sequence[Request], warmup: Sequence[Request] = (), **spec: Any) -> StagePlan:
    role = "saturated" if "concurrency" in spec else "open_loop"
    return StagePlan(spec=StageSpec(name="s", role=role, **spec), warmup=tuple(warmup), requests=tuple(requests))


class Driven:
    """A stage that has been driven: its samples and marks in order of arrival."""

    def __init__(
        self,
        plan: StagePlan,
        *,
        answer: Callable[[int, bytes], virtual.Script] = good,
        meanwhile: Callable[[Stop, Client, Progress], Any] | None = None,
        origin: float = 0.0,
        sink: Callable[[Sample], None] | None = None,
        body_of: Callable[[Request], bytes] | None = None,
    ) -> None:
        self.samples: list[Sample] = []
        self.marks: list[StageMark] = []
        self.server = virtual.Server(answer)
        self.progress = Progress()

        async def main(loop: virtual.VirtualLoop) -> None:
            loop.server = self.server
            clock = Clock(loop.time, origin)
            stop = Stop()
            async with Client(base_url="http://srv", endpoint="completions", clock=clock) as client:
                other = asyncio.create_task(meanwhile(stop, client, self.progress)) if meanwhile else None
                await asyncio.sleep(0)
                await drive_stage(
                    plan,
                    client=client,
                    clock=clock,
                    body_of=body_of or (lambda request: str(request.index).encode()),
                    sink=sink or self.samples.append,
                    marks=self.marks.append,
                    stop=stop,
                    progress=self.progress,
                )
                if other is not None:
                    await other

        virtual.run(main)

    @property
    def sent(self) -> dict[int, float]:
        return {sample.index: sample.sent_s for sample in self.samples if not sample.warmup}


def figures(mark: StageMark) -> tuple[int, int, int, int, int]:
    assert mark.planned == mark.sent + mark.unsent
    assert mark.sent == mark.ok + mark.failed
    return mark.planned, mark.sent, mark.unsent, mark.ok, mark.failed


def test_closed_loop_keeps_its_streams_busy_in_plan_order() -> None:
    driven = Driven(stage([request(n) for n in range(5)], concurrency=2))
    assert driven.sent == {0: 0.0, 1: 0.0, 2: 0.5, 3: 0.5, 4: 1.0}
    (mark,) = driven.marks
    assert figures(mark) == (5, 5, 0, 5, 0)
    assert (mark.started_s, mark.ended_s, mark.stopped, mark.warmup) == (0.0, 1.5, None, False)
    assert driven.server.connections == 2
    assert all(sample.due_s is None and sample.lag_s is None for sample in driven.samples)


def test_open_loop_sends_at_the_due_instants_whatever_the_server_does() -> None:
    due = [0.0, 0.25, 0.25, 0.3, 7.125]
    driven = Driven(stage([request(n, due_s) for n, due_s in enumerate(due)]), origin=-100.0)
    assert driven.sent == {n: 100.0 + due_s for n, due_s in enumerate(due)}
    assert [sample.due_s for sample in driven.samples] == [100.0 + due_s for due_s in due]
    assert {sample.lag_s for sample in driven.samples} == {0.0}
    assert {round(sample.ttft_from_due_s or 0, 9) for sample in driven.samples} == {0.3}
    assert driven.marks[0].ended_s == 100.0 + 7.125 + SERVICE_S


def test_lag_is_what_connecting_takes() -> None:
    plan = stage([request(0, 1.0)])
    served = Driven(plan)
    assert served.samples[0].lag_s == 0.0

    async def main(loop: virtual.VirtualLoop) -> Sample:
        loop.server = virtual.Server(good, connect_s=0.25)
        clock = Clock(loop.time, 0.0)
        samples: list[Sample] = []
        async with Client(base_url="http://srv", endpoint="completions", clock=clock) as client:
            await drive_stage(
                plan,
                client=client,
                clock=clock,
                body_of=lambda _: b"",
                sink=samples.append,
                marks=lambda _: None,
                stop=Stop(),
            )
        return samples[0]

    late = virtual.run(main)
    assert (late.due_s, late.sent_s, late.lag_s) == (1.0, 1.25, 0.25)
    assert late.ttft_s == pytest.approx(0.3)
    assert late.ttft_from_due_s == pytest.approx(0.55)


def test_warm_up_is_driven_to_its_end_first() -> None:
    driven = Driven(stage([request(0)], warmup=[request(0), request(1)], concurrency=2))
    assert [(sample.warmup, sample.index, sample.sent_s) for sample in driven.samples] == [
        (True, 0, 0.0),
        (True, 1, 0.0),
        (False, 0, 0.5),
    ]
    warmup, proper = driven.marks
    assert (warmup.warmup, warmup.started_s, warmup.ended_s, figures(warmup)) == (True, 0.0, 0.5, (2, 2, 0, 2, 0))
    assert (proper.warmup, proper.started_s, proper.ended_s, figures(proper)) == (False, 0.5, 1.0, (1, 1, 0, 1, 0))


def test_warm_up_of_an_open_loop() -> None:
    timed = Driven(stage([request(0, 0.1)], warmup=[request(0, 0.2), request(1, 0.4)]))
    assert [(sample.warmup, sample.sent_s) for sample in timed.samples] == [(True, 0.2), (True, 0.4), (False, 1.0)]
    untimed = Driven(stage([request(0, 0.0)], warmup=[request(n) for n in range(9)]))
    assert [sample.sent_s for sample in untimed.samples] == [0.0] * 8 + [0.5, 1.0]


def test_a_closed_loop_waits_for_predecessor_and_thinking() -> None:
    plan = [request(0), request(1, after=0, think_s=2.0), request(2), request(3, after=2)]
    assert Driven(stage(plan, concurrency=3)).sent == {0: 0.0, 2: 0.0, 1: 2.5, 3: 0.5}
    assert Driven(stage(plan, concurrency=1)).sent == {0: 0.0, 1: 2.5, 2: 3.0, 3: 3.5}


def test_an_open_loop_waits_for_predecessor_and_thinking() -> None:
    plan = [
        request(0, 1.0),
        request(1, 1.2, after=0, think_s=2.0),  # due 1.5 + 2.0
        request(2, 9.0, after=1),  # its own due time is later
        request(3, after=0),  # no due time of its own
        request(4, 1.0),
    ]
    driven = Driven(stage(plan))
    assert driven.sent == {0: 1.0, 4: 1.0, 3: 1.5, 1: 3.5, 2: 9.0}
    assert {sample.lag_s for sample in driven.samples} == {0.0}


JOIN = [
    request(0, 0.0),
    request(1, 1.0, after=0),  # 0 is followed by 1 and 2: a fan-out
    request(2, 4.0, after=(0,), think_s=1.0),
    request(3, after=(0, 1, 2, 1), think_s=2.0),  # the last of them ends at 4.5: a join
    request(4, after=(3,)),
]


def test_an_open_loop_fans_out_and_joins() -> None:
    driven = Driven(stage(JOIN))
    assert driven.sent == {0: 0.0, 1: 1.0, 2: 4.0, 3: 6.5, 4: 7.0}
    assert figures(driven.marks[0]) == (5, 5, 0, 5, 0)


def test_a_closed_loop_fans_out_and_joins() -> None:
    assert Driven(stage(JOIN, concurrency=4)).sent == {0: 0.0, 1: 0.5, 2: 1.5, 3: 4.0, 4: 4.5}
    assert Driven(stage(JOIN, concurrency=1)).sent == {0: 0.0, 1: 0.5, 2: 1.5, 3: 4.0, 4: 4.5}


def test_a_stream_takes_the_next_session_when_all_of_one_has_ended() -> None:
    plan = [
        request(0),
        request(1, after=0, think_s=1.0),
        request(2, after=0, think_s=2.0),
        request(3),
        request(4),
        request(5, after=3, think_s=0.5),
    ]
    driven = Driven(stage(plan, concurrency=2))
    assert driven.sent == {0: 0.0, 3: 0.0, 5: 1.0, 1: 1.5, 4: 1.5, 2: 2.5}
    assert all(sample.due_s is None for sample in driven.samples)
    assert Driven(stage(plan, concurrency=9)).sent[4] == 0.0


def test_duration_ends_a_session_where_it_stands() -> None:
    plan = [request(0), request(1, after=0, think_s=9.0), request(2), request(3)]
    driven = Driven(stage(plan, concurrency=2, duration_s=0.75))
    assert driven.sent == {0: 0.0, 2: 0.0, 3: 0.5}
    assert (driven.marks[0].ended_s, figures(driven.marks[0])) == (1.0, (4, 3, 1, 3, 0))


def test_a_plan_that_would_never_end_is_refused() -> None:
    for plan in (stage([request(0, after=1), request(1)], concurrency=1), stage([request(0, 0.0, after=0)])):
        with pytest.raises(ValueError, match="request 0 waits for"):
            Driven(plan)


def test_a_failed_predecessor_has_ended_too() -> None:
    def refuse_first(number: int, _: bytes) -> virtual.Script:
        return good() if number else virtual.Script([(0.2, response("500 Oops", b"x"))])

    driven = Driven(stage([request(0), request(1, after=0)], concurrency=2), answer=refuse_first)
    assert driven.sent == {0: 0.0, 1: 0.2}
    assert figures(driven.marks[0]) == (2, 2, 0, 1, 1)


def test_duration_ends_the_sending_and_nothing_else() -> None:
    driven = Driven(stage([request(n) for n in range(9)], concurrency=2, duration_s=0.75))
    assert driven.sent == {0: 0.0, 1: 0.0, 2: 0.5, 3: 0.5}
    (mark,) = driven.marks
    assert (mark.stopped, mark.ended_s, figures(mark)) == ("duration", 1.0, (9, 4, 5, 4, 0))
    opened = Driven(stage([request(0, 0.1), request(1, 0.7), request(2, 0.8), request(3, after=1)], duration_s=0.75))
    assert opened.sent == {0: 0.1, 1: 0.7}
    assert (opened.marks[0].stopped, figures(opened.marks[0])) == ("duration", (4, 2, 2, 2, 0))


def test_a_duration_that_cuts_nothing_is_not_named() -> None:
    driven = Driven(stage([request(0)], warmup=[request(0)], concurrency=1, duration_s=0.1))
    assert [mark.stopped for mark in driven.marks] == [None, None]


@pytest.mark.parametrize("spec", [{"concurrency": 2}, {}])
def test_stop_now_ends_what_is_in_flight(spec: dict[str, Any]) -> None:
    async def interrupt(stop: Stop, client: Client, progress: Progress) -> None:
        await asyncio.sleep(0.8)
        assert client.in_flight == progress.in_flight == 2
        stop.now()
        assert stop.after_stage_asked

    requests = [request(n, 0.25 * n) for n in range(9)] + [request(9, after=8), request(10, after=9, think_s=9.0)]
    driven = Driven(stage(requests, **spec), meanwhile=interrupt)
    stopped = [sample for sample in driven.samples if sample.failure]
    assert [sample.failure.kind for sample in stopped if sample.failure] == ["stopped", "stopped"]
    assert {sample.end_s for sample in stopped} == {0.8}
    (mark,) = driven.marks
    assert (mark.stopped, mark.ended_s) == ("interrupted", 0.8)
    assert figures(mark)[:2] == (11, len(driven.samples))


def test_stop_now_in_the_warm_up_sends_nothing_of_the_stage() -> None:
    async def interrupt(stop: Stop, client: Client, progress: Progress) -> None:
        await asyncio.sleep(0.25)
        assert progress.warmup
        stop.now()

    driven = Driven(stage([request(0)], warmup=[request(0)], concurrency=1), meanwhile=interrupt)
    warmup, proper = driven.marks
    assert (warmup.stopped, figures(warmup)) == ("interrupted", (1, 1, 0, 0, 1))
    assert (proper.stopped, figures(proper)) == ("interrupted", (1, 0, 1, 0, 0))


def test_stop_after_stage_lets_it_end() -> None:
    async def ask(stop: Stop, client: Client, progress: Progress) -> None:
        stop.after_stage()

    driven = Driven(stage([request(0)], concurrency=1), meanwhile=ask)
    assert (driven.marks[0].stopped, figures(driven.marks[0])) == (None, (1, 1, 0, 1, 0))


def test_progress_may_be_read_at_any_time() -> None:
    seen = []

    async def look(stop: Stop, client: Client, progress: Progress) -> None:
        for wait_s in (0.45, 0.1, 0.15):
            await asyncio.sleep(wait_s)
            seen.append((progress.stage, progress.planned, progress.sent, progress.done, progress.tokens))

    plan = stage([request(n) for n in range(3)], concurrency=1)
    driven = Driven(plan, answer=lambda *_: virtual.Script(paced(0.2, 0.2, 3)), meanwhile=look)
    # what has come is decoded every quarter of a second
    assert seen == [("s", 3, 1, 0, 1), ("s", 3, 1, 0, 2), ("s", 3, 2, 1, 3)]
    assert (driven.progress.done, driven.progress.failed, driven.progress.tokens) == (3, 0, 9)


def test_what_the_sink_raises_ends_the_stage() -> None:
    def full(_: Sample) -> None:
        raise ExperimentError("disk full")

    for plan in (stage([request(n) for n in range(4)], concurrency=2), stage([request(n, 0.1 * n) for n in range(4)])):
        with pytest.raises(ExperimentError, match="disk full"):
            Driven(plan, sink=full)


def test_what_the_body_raises_ends_the_stage() -> None:
    def bad(request: Request) -> bytes:
        raise ExperimentError(f"no body for {request.index}")

    with pytest.raises(ExperimentError, match="no body for 0"):
        Driven(stage([request(0)], concurrency=1), body_of=bad)


def test_each_request_gets_its_own_body_and_is_sent_once() -> None:
    plan = [request(0), request(1, after=0, think_s=3.0), *(request(n) for n in range(2, 40))]
    driven = Driven(stage(plan, concurrency=3))
    bodies = sorted(int(wire.rpartition(b"\r\n\r\n")[2]) for _, wire in driven.server.requests)
    assert bodies == list(range(40))


def test_memory_is_settled_and_left_as_it_was() -> None:
    frozen = []
    Driven(stage([request(0)], concurrency=1), sink=lambda _: frozen.append(gc.get_freeze_count()))
    assert frozen[0] > 1000
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        Driven(stage([request(0)], concurrency=1))
        assert gc.get_freeze_count() == pytest.approx(before, rel=0.01)
    finally:
        gc.unfreeze()


# --- what a stage is made of ---------------------------------------------------------------------------------


def test_a_cap_spaces_what_it_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: virtual.VirtualLoop) -> list[float]:
        monkeypatch.setattr(asyncio_throttle.throttler, "time", SimpleNamespace(monotonic=loop.time))
        cap = Cap(10.0)
        passed = []

        async def one() -> None:
            await cap.turn()
            passed.append(loop.time())

        await asyncio.gather(*(one() for _ in range(5)))
        return passed

    passed = virtual.run(main)
    gaps = [later - earlier for earlier, later in itertools.pairwise(passed)]
    assert passed[0] == 0.0
    assert all(0.1 <= gap <= 0.1 + 0.0051 for gap in gaps)


@pytest.mark.parametrize("due_s", [0.0, None])
def test_a_long_line_before_the_cap_ends_with_the_stage(monkeypatch: pytest.MonkeyPatch, due_s: float | None) -> None:
    async def interrupt(stop: Stop, client: Client, progress: Progress) -> None:
        await asyncio.sleep(1.0)
        stop.now()

    loops = {"concurrency": 50} if due_s is None else {}
    plan = stage([request(n, due_s) for n in range(60)], limit_per_s=0.1, **loops)
    monkeypatch.setattr(
        asyncio_throttle.throttler, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    )
    (mark,) = Driven(plan, meanwhile=interrupt).marks
    assert (mark.stopped, mark.ended_s) == ("interrupted", 1.0)
    assert (mark.sent, mark.unsent) == (1, 59)


def test_a_capped_stage_sends_late_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stage([request(n, 0.0) for n in range(3)], limit_per_s=2.0)
    monkeypatch.setattr(
        asyncio_throttle.throttler, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    )
    driven = Driven(plan)
    lags = sorted(sample.lag_s or 0.0 for sample in driven.samples)
    assert lags[0] == 0.0
    assert lags[1] == pytest.approx(0.5, abs=0.006)
    assert lags[2] == pytest.approx(1.0, abs=0.012)


def test_a_gate_waits_for_instants_and_turns_away_when_closed() -> None:
    async def main(loop: virtual.VirtualLoop) -> None:
        gate = Gate(Clock(loop.time, 0.0))
        assert await gate.until(-1.0)
        assert await gate.until(2.0)
        assert loop.time() == 2.0
        waiting = [asyncio.create_task(gate.until(5.0)), asyncio.create_task(gate.first(loop.create_future()))]
        await asyncio.sleep(1.0)
        gate.close()
        gate.close()
        assert await waiting[0] is False
        assert await waiting[1] is None
        assert loop.time() == 3.0
        assert not await gate.until(0.0)
        assert not gate.is_open

    virtual.run(main)


def test_waiting_in_real_time_is_never_early() -> None:
    async def main() -> float:
        clock = Clock()
        gate = Gate(clock)
        at_s = clock.now() + 0.0123
        assert await gate.until(at_s)
        return clock.now() - at_s

    assert asyncio.run(main()) >= 0.0


def test_bodies_are_made_ahead_within_their_limits() -> None:
    made: list[int] = []

    def body_of(request: Request) -> bytes:
        made.append(request.index)
        return bytes(100)

    async def main(loop: virtual.VirtualLoop) -> None:
        requests = [request(n) for n in range(10)]
        bodies = Bodies(requests, body_of, ahead_bytes=250)
        await bodies.prefill()
        assert made == [0, 1, 2]
        async with bodies.kept_filled():
            bodies.take(requests[7])  # overtakes
            bodies.take(requests[0])
            await asyncio.sleep(1.0)
            assert made == [0, 1, 2, 7, 3]
            for index in (1, 2, 3, 4, 5, 6, 8, 9):
                bodies.take(requests[index])
                await asyncio.sleep(1.0)
        assert sorted(made) == list(range(10))
        few = Bodies(requests, body_of, ahead_count=2)
        await few.prefill()
        assert made[-2:] == [0, 1]

    virtual.run(main)


def test_health_tells_lag_and_load() -> None:
    seen: list[Health] = []

    async def main(loop: virtual.VirtualLoop) -> None:
        task = asyncio.create_task(
            health.watch(Clock(loop.time, 0.0), seen.append, lambda: 7, 0.25, cpu_s=lambda: loop.time() / 2)
        )
        await asyncio.sleep(0.31)
        loop._virtual_s += 0.04  # something holds the loop
        await asyncio.sleep(0.5)
        task.cancel()

    virtual.run(main)
    assert [round(one.at_s, 6) for one in seen] == [0.25, 0.5, 0.75]
    assert [round(one.loop_lag_max_s, 6) for one in seen] == [0.0, 0.025, 0.0]
    assert {one.in_flight for one in seen} == {7}
    assert [round(one.cpu_s, 6) for one in seen] == [0.125] * 3
    assert all(one.rss_bytes > 1e6 for one in seen)
