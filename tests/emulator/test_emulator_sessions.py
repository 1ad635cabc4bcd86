"""One plan of sessions sent through the client and through virtual time: the same rules hold of both."""

from collections.abc import Callable

import pytest
from fakes import virtual
from fakes.streams import paced

from loadgen.clock import Clock
from loadgen.drive import run as drive
from loadgen.drive.client import Client
from loadgen.emulator import virtual as emulated
from loadgen.emulator.arm import emulated as arm
from loadgen.emulator.profile import load
from loadgen.records import Request, Run, Sample, StageMark, StagePlan, StageSpec, sessions


def request(
    index: int, due_s: float | None = None, after: tuple[int, ...] | None = None, think_s: float = 0.0
) -> Request:
    return Request(
        index=index, due_s=due_s, runs=(Run(f"s:{index}", 40 + index),), output_tokens=5, after=after, think_s=think_s
    )


PLAN = (
    request(0, 0.0),
    request(1, None, (0,), 1.5),
    request(2, 0.2),
    request(3, None, (1,), 0.25),  # 1 asks two sub-agents
    request(4, 9.0, (1,)),  # its think time is not known: not before its own time
    request(5, None, (3, 4), 0.5),  # and joins them
    request(6, 0.3),
    request(7, None, (6,)),
    request(8, 0.4),
)


def through_the_client(stage: StagePlan) -> tuple[list[Sample], list[StageMark]]:
    samples: list[Sample] = []
    marks: list[StageMark] = []

    async def main(loop: virtual.VirtualLoop) -> None:
        loop.server = virtual.Server(lambda *_: virtual.Script(paced(0.3, 0.1, 5)))
        clock = Clock(loop.time, 0.0)
        async with Client(base_url="http://srv", endpoint="completions", clock=clock) as client:
            await drive.drive_stage(
                stage,
                client=client,
                clock=clock,
                body_of=lambda _: b"",
                sink=samples.append,
                marks=marks.append,
                stop=drive.Stop(),
            )

    virtual.run(main)
    return samples, marks


def through_virtual_time(stage: StagePlan) -> tuple[list[Sample], list[StageMark]]:
    process = emulated.Process(arm(load("cpu-tiny-llama"), {}), seed=(1,))
    return emulated.drive_stage(stage, process, salt="x", origin_s=0.0)


Way = Callable[[StagePlan], tuple[list[Sample], list[StageMark]]]
WAYS = pytest.mark.parametrize("way", [through_the_client, through_virtual_time])


def sent(way: Way, concurrency: int | None) -> dict[int, Sample]:
    role = "open_loop" if concurrency is None else "saturated"
    samples, marks = way(
        StagePlan(spec=StageSpec(name="s", role=role, concurrency=concurrency), warmup=(), requests=PLAN)
    )
    assert [(mark.planned, mark.sent, mark.ok) for mark in marks] == [(9, 9, 9)]
    return {sample.index: sample for sample in samples}


@WAYS
def test_an_open_loop_sends_starts_on_time_and_turns_after_thinking(way: Way) -> None:
    seen = sent(way, None)
    for one in PLAN:
        ends = [seen[index].end_s + one.think_s for index in one.after or ()]
        assert seen[one.index].sent_s == pytest.approx(max([one.due_s or 0.0, *ends]))
        assert seen[one.index].due_s == pytest.approx(seen[one.index].sent_s), "its own due instant, so it is not late"


@WAYS
@pytest.mark.parametrize("streams", [1, 2, 3, 9])
def test_a_closed_loop_keeps_so_many_sessions_going(way: Way, streams: int) -> None:
    seen = sent(way, streams)
    groups = sessions(PLAN)
    assert [[one.index for one in group] for group in groups] == [[0, 1, 3, 4, 5], [2], [6, 7], [8]]
    stays = [
        (min(seen[one.index].sent_s for one in group), max(seen[one.index].end_s for one in group)) for group in groups
    ]
    for one in PLAN:
        assert seen[one.index].due_s is None
        if one.after:
            ends = max(seen[index].end_s for index in one.after)
            assert seen[one.index].sent_s == pytest.approx(ends + one.think_s, abs=1e-3)
    for number, (began_s, _) in enumerate(stays):
        others = sorted(ended_s for before_s, ended_s in stays[:number] if ended_s > began_s - 1e-3)
        assert len([ended_s for ended_s in others if ended_s > began_s + 1e-3]) < streams
        if number >= streams:
            assert any(ended_s == pytest.approx(began_s, abs=1e-3) for _, ended_s in stays[:number])
        else:
            assert began_s == pytest.approx(0.0)
