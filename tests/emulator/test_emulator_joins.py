"""In virtual time, requests that wait for several others are sent when the last of them has ended, plus thinking."""

import pytest

from loadgen.emulator.arm import emulated
from loadgen.emulator.profile import load
from loadgen.emulator.virtual import CLOSE_S, Process, drive_stage
from loadgen.records import Request, Run, Sample, StagePlan, StageSpec


def request(
    index: int, due_s: float | None = None, after: tuple[int, ...] | None = None, think_s: float = 0.0
) -> Request:
    return Request(
        index=index, due_s=due_s, runs=(Run(f"u:{index}", 20 + index),), output_tokens=5, after=after, think_s=think_s
    )


JOIN = (
    request(0, 0.0),
    request(1, 1.0, (0,)),
    request(2, 4.0, (0,), 0.5),
    request(3, None, (0, 1, 2, 1), 2.0),
    request(4, None, (3,)),
)


def driven(concurrency: int | None) -> dict[int, Sample]:
    role = "open_loop" if concurrency is None else "saturated"
    stage = StagePlan(spec=StageSpec(name="s", role=role, concurrency=concurrency), warmup=(), requests=JOIN)
    samples, marks = drive_stage(
        stage, Process(emulated(load("cpu-tiny-llama"), {}), seed=(1,)), salt="x", origin_s=0.0
    )
    assert [(mark.sent, mark.unsent) for mark in marks] == [(5, 0)]
    return {sample.index: sample for sample in samples}


def test_an_open_loop_fans_out_and_joins() -> None:
    samples = driven(None)
    assert [samples[index].sent_s for index in (0, 1, 2)] == [0.0, 1.0, 4.0]
    assert samples[3].sent_s == pytest.approx(samples[2].end_s + 2.0)
    assert samples[4].sent_s == pytest.approx(samples[3].end_s)
    assert samples[3].due_s == samples[3].sent_s


@pytest.mark.parametrize("streams", [1, 4])
def test_a_closed_loop_fans_out_and_joins(streams: int) -> None:
    samples = driven(streams)
    assert samples[1].sent_s == pytest.approx(samples[0].end_s, abs=CLOSE_S)
    assert samples[2].sent_s == pytest.approx(max(samples[0].end_s + 0.5, samples[1].end_s if streams == 1 else 0))
    assert samples[3].sent_s == pytest.approx(max(samples[1].end_s, samples[2].end_s) + 2.0)
    assert samples[4].sent_s == pytest.approx(samples[3].end_s)
