"""What keys of a scenario may stand together. Pure, on the raw mapping: wrong types elsewhere do not hide these.

Presence is all that is looked at here, so that a file with several kinds of mistake gets every complaint at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LENGTHS = ("input_tokens", "output_tokens")
KINDS = (*LENGTHS, "shared_prefix", "families", "sessions")  # what says what requests of one kind look like
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
    if stages is None and not _given(data, "grid"):
        found.append(Complaint(("stages",), "missing; required (sent one after the other), or a grid"))
    for number, stage in enumerate(steps):
        if not isinstance(stage, Mapping):
            continue
        found += [Complaint(("stages", number, *rule.place), rule.should, rule.value) for rule in _of_loop(stage, work)]
        if workload is None or isinstance(workload, Mapping):
            found += [Complaint(("stages", number, *rule.place), rule.should) for rule in _of_lengths(stage, work)]
    return [*found, *_repeated(stages, ("stages",))]


def _given(keys: Mapping[Any, Any], name: str) -> bool:
    return keys.get(name) is not None


def _of_workload(work: Mapping[Any, Any]) -> Iterator[Complaint]:
    wholes = [key for key in ("trace", "mix") if _given(work, key)]
    if len(wholes) > 1:
        yield Complaint(("workload", "mix"), "should be left out: the trace gives all traffic")
    told = {"trace": "the trace gives it", "mix": "each class of the mix has its own"}
    for key in KINDS if wholes else ():
        if _given(work, key):
            yield Complaint(("workload", key), f"should be left out: {told[wholes[0]]}", work[key])
    if not wholes:
        yield from (Complaint(("workload", *rule.place), rule.should) for rule in _of_sessions(work))
    mix = work.get("mix")
    for number, kind in enumerate(mix if isinstance(mix, list | tuple) else ()):
        if isinstance(kind, Mapping):
            place = ("workload", "mix", number)
            yield from (Complaint((*place, *rule.place), rule.should) for rule in _of_class(kind))
    yield from _repeated(mix, ("workload", "mix"))


def _of_class(kind: Mapping[Any, Any]) -> Iterator[Complaint]:
    yield from _of_sessions(kind)
    for key in ("output_tokens",) if _given(kind, "sessions") else LENGTHS:
        if not _given(kind, key):
            yield Complaint((key,), "missing; should be given for each class")


def _of_sessions(kind: Mapping[Any, Any]) -> Iterator[Complaint]:
    for key in ("input_tokens", "families") if _given(kind, "sessions") else ():
        if _given(kind, key):
            yield Complaint((key,), "should be left out: sessions give the prompts")


def _repeated(items: Any, place: tuple[str, ...]) -> Iterator[Complaint]:
    """Names given twice in a list of mappings."""
    named: dict[str, int] = {}
    for number, item in enumerate(items if isinstance(items, list | tuple) else ()):
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str) and named.setdefault(name, number) != number:
            should = f"should be unique: {place[-1]}[{named[name]}] has this name"
            yield Complaint((*place, number, "name"), should, name)


def _of_loop(stage: Mapping[Any, Any], work: Mapping[Any, Any]) -> Iterator[Complaint]:
    loops = [key for key in LOOPS if _given(stage, key)]
    if not loops:
        yield Complaint((), "should have one of concurrency (closed loop), rate (open loop) or speed (a trace's times)")
    if len(loops) > 1:
        yield Complaint((), f"should have only one of {' and '.join(loops)}")
    if _given(stage, "burstiness") and not _given(stage, "rate"):
        yield Complaint(("burstiness",), "should stand beside rate only", stage["burstiness"])
    if _given(stage, "bursts") and not _given(stage, "rate"):
        yield Complaint(("bursts",), "should stand beside rate only")
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
    whole = next((key for key in ("trace", "mix", "sessions") if _given(work, key)), None)
    if whole is not None:
        yield from _instead(stage, work, whole)
        return
    for key in missing:
        if not _given(work, key):
            yield Complaint((key,), f"missing; should be given here or as workload.{key}")


def _instead(stage: Mapping[Any, Any], work: Mapping[Any, Any], whole: str) -> Iterator[Complaint]:
    """A stage takes all from the trace, mix or sessions, or has lengths of its own."""
    own = [key for key in LENGTHS if _given(stage, key)]
    missing = [key for key in LENGTHS if not _given(stage, key) and not _given(work, key)]
    if own and missing and (whole != "sessions" or own != ["output_tokens"]):
        should = f"missing; should be given too: a stage takes both lengths from the {whole}, or none"
        yield Complaint((missing[0],), should)
    if not own and whole != "sessions" and _given(stage, "shared_prefix"):
        yield Complaint(("shared_prefix",), f"should be left out: the {whole} gives it")
    if whole == "sessions" and own == ["output_tokens"]:
        yield Complaint(("output_tokens",), "should stand beside input_tokens: sessions have the workload's")
    if whole == "sessions" and not own and not _given(work, "output_tokens"):
        yield Complaint(("output_tokens",), "missing; should be given as workload.output_tokens")
