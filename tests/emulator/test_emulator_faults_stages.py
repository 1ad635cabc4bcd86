"""Stages with a fault on every third request: nothing is lost, nothing is counted twice; and the table in docs."""

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from emulator.fault_cases import CASES, OF_REQUESTS, TOKENS, Case
from fakes.streaming_app import App, serving

from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.drive.run import Stop, drive_stage
from loadgen.drive.transport import Timeouts
from loadgen.emulator.faults import parse
from loadgen.records import Request, Run, Sample, StageMark, StagePlan, StageSpec

DOCS = Path(__file__).parents[2] / "docs" / "faults.md"
EVERY = 3
REQUESTS = 7
BODY = json.dumps({"stream": True, "max_tokens": TOKENS, "prompt": "a b c"}).encode()


class Driven:
    """A stage over a real socket: its samples and its mark."""

    def __init__(self, samples: list[Sample], mark: StageMark) -> None:
        self.samples, self.mark = samples, mark
        self.kinds = Counter("ok" if sample.failure is None else sample.failure.kind for sample in samples)

    @property
    def outcome(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items(), key=lambda kv: kv[0] != "ok"))


def stage(count: int, *, after: bool = False, gap_s: float | None = None, **spec) -> StagePlan:
    """With `after`, each request waits for the one before it, as in a conversation."""
    requests = [
        Request(
            index=n,
            runs=(Run(str(n), 3),),
            output_tokens=TOKENS,
            due_s=None if gap_s is None else n * gap_s,
            after=(n - 1,) if after and n else None,
        )
        for n in range(count)
    ]
    role = "one_stream" if spec.get("concurrency") == 1 else "saturated" if "concurrency" in spec else "open_loop"
    return StagePlan(spec=StageSpec(name="s", role=role, **spec), warmup=(), requests=tuple(requests))


async def driving(switches: list[str], plan: StagePlan, read_s: float) -> Driven:
    samples: list[Sample] = []
    marks: list[StageMark] = []
    clock = Clock()
    async with serving(App(0.001), parse(switches)) as url:
        timeouts = Timeouts(connect_s=2.0, read_s=read_s)
        async with Client(base_url=url, endpoint="completions", clock=clock, timeouts=timeouts) as client:
            await drive_stage(
                plan,
                client=client,
                clock=clock,
                body_of=lambda _: BODY,
                sink=samples.append,
                marks=marks.append,
                stop=Stop(),
            )
            assert client.in_flight == 0
    (mark,) = marks
    return Driven(samples, mark)


def driven(cases: list[Case], plan: StagePlan) -> dict[str, Driven]:
    async def main() -> list[Driven]:
        return await asyncio.gather(*(driving([f"{c.switch}@{EVERY}"], plan, c.read_s) for c in cases))

    return dict(zip([case.switch for case in cases], asyncio.run(main()), strict=True))


def assert_exact(done: Driven, planned: int) -> None:
    mark = done.mark
    assert mark.planned == planned == mark.sent + mark.unsent
    assert mark.sent == mark.ok + mark.failed == len(done.samples)
    assert mark.ok == done.kinds["ok"]
    assert len({sample.index for sample in done.samples}) == mark.sent
    assert mark.started_s <= min(sample.sent_s for sample in done.samples)
    assert max(sample.end_s for sample in done.samples) <= mark.ended_s


@pytest.fixture(scope="module")
def one_stream() -> dict[str, Driven]:
    return driven(OF_REQUESTS, stage(REQUESTS, concurrency=1))


@pytest.mark.parametrize("case", OF_REQUESTS, ids=lambda case: case.switch)
def test_one_stream_counts_every_request_once(case: Case, one_stream):
    done = one_stream[case.switch]
    assert_exact(done, REQUESTS)
    assert done.mark.unsent == 0
    if case.fault.name in ("refuse", "accept-and-close"):  # they last
        assert done.outcome == f"2 ok, 5 {case.ends}"
    elif case.fault.name == "reset-before-response":  # sent once more, and the next is not spoilt
        assert done.outcome == "7 ok"
        assert sum(sample.retries for sample in done.samples) >= 2
    else:
        assert done.outcome == ("7 ok" if case.ends == "ok" else f"5 ok, 2 {case.ends}")


@pytest.mark.parametrize(
    "plan",
    [
        stage(20, concurrency=6),
        stage(20, gap_s=0.004),
        stage(20, gap_s=0.001, after=True),
        stage(20, concurrency=3, limit_per_s=200.0),
        stage(200, concurrency=4, duration_s=0.1),
    ],
    ids=["saturated", "open-loop", "conversations", "capped", "timed"],
)
def test_busy_stages_lose_nothing_either(plan):
    cases = [case for case in OF_REQUESTS if case.ends != "ok" or case.fault.where == "wire"]
    for switch, done in driven(cases, plan).items():
        assert_exact(done, len(plan.requests))
        assert done.kinds["ok"] > 0 or switch in ("refuse", "accept-and-close")  # they last
        assert done.mark.unsent == 0 or done.mark.stopped == "duration"


# --- docs/faults.md ------------------------------------------------------------------------------------------

HEADINGS = {
    "response": "Answers",
    "stream": "Streams",
    "wire": "Connections",
    "metrics": "/metrics",
    "process": "The process",
}
INTRODUCTION = f"""# Planted faults, and how each one ends

The [emulated engine](emulator-front.md) can be told to misbehave: `loadgen emulate PROFILE --fault
NAME[=VALUE][@EVERY]`, one switch per fault. It spoils every EVERY-th completion request that asks for a stream
(default: every one), or every EVERY-th reading of `/metrics`; `process-dies@20` dies at the twentieth.

The tests write these tables from what they see, and fail where it changes. *Ends as* is the kind of the sample's
failure, *detail* a part of its detail, or a remark. The last column is a stage of {REQUESTS} requests, one after
another, with `@{EVERY}` added. In every stage planned = sent + unsent and sent = ok + failed; a failed request is a
sample, never an exception.
"""
HEADS = ("switch", "what the server does", "ends as", "detail")
STAGE = f"{REQUESTS} requests, every third spoilt"


def table(heads: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    rows = [heads, ("---",) * len(heads), *lines]
    return "\n".join("| " + " | ".join(cell or "–" for cell in row) + " |" for row in rows)


def switch_cell(case: Case) -> str:
    value = case.fault.value
    default = f"={value.default}" if value is not None and "=" not in case.switch else ""
    return f"`{case.switch}{default}`"


def section(where: str, heading: str, one_stream: dict[str, Driven]) -> str:
    cases = [case for case in CASES if case.fault.where == where]
    lines = [(switch_cell(case), case.fault.sentence, case.ends, case.says) for case in cases]
    if where in ("metrics", "process"):
        return f"## {heading}\n\n{table(HEADS, lines)}\n"
    told = [(*line, one_stream[case.switch].outcome) for line, case in zip(lines, cases, strict=True)]
    return f"## {heading}\n\n{table((*HEADS, STAGE), told)}\n"


def test_docs_say_what_was_seen(one_stream):
    parts = [INTRODUCTION, *(section(where, heading, one_stream) for where, heading in HEADINGS.items())]
    content = "\n".join(parts)
    if os.environ.get("LOADGEN_UPDATE_GOLDEN"):
        DOCS.write_text(content, "utf-8")
    assert content == DOCS.read_text("utf-8"), f"{DOCS} differs; if that is meant: LOADGEN_UPDATE_GOLDEN=1 make test"
