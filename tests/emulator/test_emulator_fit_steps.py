"""Steps from arrivals: the engine's own account against what is reconstructed."""

from collections import deque

import msgspec
import pytest
from emulator.fit_planted import FULL, ONE, PROFILE, planned, requests, run, stage, stuttering

from loadgen.emulator.arm import emulated
from loadgen.emulator.cost import Work
from loadgen.emulator.fit_steps import preemptions, steps_of, unreadable
from loadgen.emulator.model import Model, Sequence
from loadgen.records import Sample

QUIET = {"step": 0.0, "start": 0.0, "wander": 0.0, "hiccups_per_minute": 0.0}


def served(
    lengths: list[tuple[int, int]], *, streams: int, flags: dict[str, str]
) -> tuple[list[Work], list[Sample], int]:
    """A closed loop by hand: the works of all steps, the samples, and how often a sequence was set back."""
    arm = emulated(PROFILE, {"kv-cache-dtype": "bfloat16", **flags})
    model: Model = arm.model()
    left = deque(Sequence(prompt_tokens=p, output_tokens=o, arrived_s=0.0) for p, o in lengths)
    every = list(left)
    works, now_s, back = [], 0.0, 0
    for _ in range(min(streams, len(left))):
        model.add(left.popleft())
    while model.busy:
        step = model.step(now_s)
        works.append(step.work)
        back += len(step.preempted)
        now_s = step.ended_s
        for _ in step.finished:
            if left:
                following = left.popleft()
                following.arrived_s = now_s
                model.add(following)
    samples = [
        Sample(
            index=number,
            stage="s",
            sent_s=sequence.arrived_s,
            events_s=tuple(sequence.events_s),
            end_s=sequence.events_s[-1],
            planned_prompt_tokens=sequence.prompt_tokens,
            planned_output_tokens=sequence.output_tokens,
            output_tokens=sequence.produced,
        )
        for number, sequence in enumerate(every)
    ]
    return works, samples, back


@pytest.mark.parametrize("streams", [1, 3, 12])
def test_work_is_as_the_engine_had_it(streams):
    lengths = [(20 + 37 * n % 160, 12 + 29 * n % 90) for n in range(30)]
    works, samples, back = served(lengths, streams=streams, flags={})
    steps = steps_of(samples, budget_tokens=2048)
    assert back == 0
    assert [step.work for step in steps] == works
    assert all(step.steps == 1 for step in steps)


def test_preempted_sequences_compute_their_context_again():
    lengths = [(100 + 40 * (n % 3), 150) for n in range(40)]
    works, samples, back = served(lengths, streams=30, flags={"max-num-batched-tokens": "8192"})
    steps = steps_of(samples, budget_tokens=8192)
    assert back > 5
    assert preemptions(samples) == back
    assert [step.work for step in steps] == works


def test_chunks_are_put_where_they_were_computed():
    lengths = [(300 + 110 * (n % 4), 25) for n in range(12)]
    works, samples, _ = served(lengths, streams=4, flags={"max-num-batched-tokens": "256"})
    steps = steps_of(samples, budget_tokens=256)
    yielding = [work for work in works if work.sequences]  # the others end in no arrival
    assert [step.work.sequences for step in steps] == [work.sequences for work in yielding]
    assert sum(step.steps for step in steps) == pytest.approx(len(works), abs=1)
    for field in ("new_tokens", "prefill_tokens", "prefill_pairs"):
        assert sum(getattr(step.work, field) for step in steps) == sum(getattr(work, field) for work in works), field
    same = sum(step.work == work for step, work in zip(steps, yielding, strict=True))
    assert same >= 0.9 * len(steps)


def test_a_stutter_in_the_writing_splits_no_step():
    quiet = PROFILE.model_copy(update={"noise": PROFILE.noise.model_copy(update=QUIET)})
    plain = run(planned(FULL), quiet, formats=("fp8",), repeats=1)
    late = stuttering(plain, seed=3)
    one, other = (steps_of(x.blocks[0].samples, budget_tokens=2048) for x in (plain, late))
    assert len(other) == len(one)
    assert [step.work for step in other] == [step.work for step in one]
    assert preemptions(late.blocks[0].samples) == 0


def test_an_idle_engine_is_timed_from_the_sending():
    experiment = run(planned(ONE), formats=("bfloat16",), repeats=1)
    steps = steps_of(experiment.blocks[0].samples, budget_tokens=2048)
    waited = [step for step in steps if step.from_idle]
    assert len(waited) == 8
    assert [step.seconds for step in waited] == pytest.approx([s.ttft_s for s in experiment.blocks[0].samples])


def test_a_token_that_came_with_the_next_is_no_preemption():
    _, samples, _ = served([(50, 20)] * 4, streams=4, flags={})
    first = samples[0]
    merged = Sample(
        index=0,
        stage="s",
        sent_s=first.sent_s,
        events_s=first.events_s[:7] + first.events_s[8:],
        end_s=first.end_s,
        planned_prompt_tokens=50,
        planned_output_tokens=20,
        output_tokens=20,
    )
    assert preemptions([merged, *samples[1:]]) == 0
    assert preemptions(samples) == 0


def test_one_token_a_request_cannot_be_read():
    asked = stage("short", 4, requests(8, (20, 30), (1, 1), 1))
    experiment = run(planned(asked), formats=("bfloat16",), repeats=1)
    assert "one token a request" in str(unreadable(experiment.blocks[0].samples))


def test_a_late_client_is_told():
    experiment = run(planned(ONE), formats=("bfloat16",), repeats=1)
    assert unreadable(experiment.blocks[0].samples) is None
    late = [
        msgspec.structs.replace(sample, events_s=tuple(at_s for at_s in sample.events_s[::4] for _ in range(4)))
        for sample in experiment.blocks[0].samples
    ]
    assert "% of tokens came together" in str(unreadable(late))
