"""What keys of a scenario may stand together. Pure, on the raw mapping: wrong types elsewhere do not hide these.

Presence is all that is looked at here, so that a file with several kinds of mistake gets every complaint at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LENGTHS = ("input_tokens", "output_tokens")
LOOPS = ("concurrency", "rate", "speed")


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong at `place` (keys and list positions from the top of the file)."""

    place: tuple[str | int, ...]
    should: str
    value: Any = None


def complaints(data: Any) -> list[Complaint]:
    """Every rule about keys that need, exclude or repeat each other."""
    if not isinstance(data, Mapping):
        return []
    workload = data.get("workload")
    work = workload if isinstance(workload, Mapping) else {}
    stages = data.get("stages")
    steps = stages if isinstance(stages, list | tuple) else ()
    found = list(_of_workload(work))
    if isinstance(stages, list | tuple) and not stages:
        found.append(Complaint(("stages",), "empty; should be a list of at least one stage"))
    named: dict[Any, int] = {}
    for number, stage in enumerate(steps):
        if not isinstance(stage, Mapping):
            continue
        found += [Complaint(("stages", number, *rule.place), rule.should, rule.value) for rule in _of_loop(stage, work)]
        if workload is None or isinstance(workload, Mapping):
            found += [Complaint(("stages", number, *rule.place), rule.should) for rule in _of_lengths(stage, work)]
        name = stage.get("name")
        if isinstance(name, str) and named.setdefault(name, number) != number:
            should = f"should be unique: stages[{named[name]}] has this name"
            found.append(Complaint(("stages", number, "name"), should, name))
    return found


def _given(keys: Mapping[Any, Any], name: str) -> bool:
    return keys.get(name) is not None


def _of_workload(work: Mapping[Any, Any]) -> Iterator[Complaint]:
    if not _given(work, "trace"):
        return
    for key in (*LENGTHS, "shared_prefix"):
        if _given(work, key):
            yield Complaint(("workload", key), "should be left out: the trace gives it", work[key])


def _of_loop(stage: Mapping[Any, Any], work: Mapping[Any, Any]) -> Iterator[Complaint]:
    loops = [key for key in LOOPS if _given(stage, key)]
    if not loops:
        yield Complaint((), "should have one of concurrency (closed loop), rate (open loop) or speed (a trace's times)")
    if len(loops) > 1:
        yield Complaint((), f"should have only one of {' and '.join(loops)}")
    if _given(stage, "burstiness") and not _given(stage, "rate"):
        yield Complaint(("burstiness",), "should stand beside rate only", stage["burstiness"])
    traced = _given(work, "trace")
    if _given(stage, "speed") and not traced:
        yield Complaint(("speed",), "should stand in a scenario with workload.trace only", stage["speed"])
    bounded = _given(stage, "requests") or _given(stage, "duration")
    if loops and not bounded and not (traced and not _given(stage, "input_tokens")):
        yield Complaint((), "should say when it ends: requests, duration, or both")


def _of_lengths(stage: Mapping[Any, Any], work: Mapping[Any, Any]) -> Iterator[Complaint]:
    own = [key for key in LENGTHS if _given(stage, key)]
    missing = [key for key in LENGTHS if key not in own]
    if _given(stage, "speed") and own:
        yield Complaint((own[0],), "should be left out: a replay takes lengths from the trace")
        return
    if _given(work, "trace"):
        if len(own) == 1:
            should = "missing; should be given too: a stage takes both lengths from the trace, or none"
            yield Complaint((missing[0],), should)
        if not own and _given(stage, "shared_prefix"):
            yield Complaint(("shared_prefix",), "should be left out: the trace gives it")
        return
    for key in missing:
        if not _given(work, key):
            yield Complaint((key,), f"missing; should be given here or as workload.{key}")
