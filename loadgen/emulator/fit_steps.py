"""Engine steps, reconstructed from when tokens arrived at the client.

Every sequence that a step serves yields its token at the step's end, so all of them arrive together: arrivals fall
into bursts, one a step. A sequence that is missing from a burst while it runs was preempted; where it returns, its
prompt and its output so far were computed again. (A server counts its steps, `iteration_tokens_count`: the check.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.emulator.cost import Work
from loadgen.records import Sample

Values = NDArray[np.float64]

SHORTEST_SHARE = 0.05  # of a stream's own gaps, taken for the shortest steps
MOST_TOKENS_PER_EVENT = 1.03
TIED_SHARE = 0.1  # of the mean gap, below which two tokens of a stream came together
MOST_TIED = 0.05
BURST_SHARE = 0.5  # arrivals closer than this share of such a step belong together


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One step as the client saw it. `seconds` run from the step before, or from the sending to an idle engine."""

    at_s: float
    seconds: float
    work: Work
    steps: int = 1  # more where chunks of a prefill that yield nothing went before
    from_idle: bool = False


_Burst = dict[int, float]  # position of a stream in the list of samples -> when its token arrived


@dataclass(slots=True, eq=False)
class _Prefill:
    """What has to be computed of one stream before it yields at burst `ends`; placed from burst `begins` on."""

    stream: int
    tokens: int
    before: int  # tokens in the cache when it began
    ends: int
    begins: int = 0
    unseen: int = 0  # steps before `begins` that yielded nothing to anybody


def steps_of(samples: Sequence[Sample], *, budget_tokens: int) -> tuple[Seen, ...]:
    """The steps that served `samples`: all requests of one part of a stage, none failed; see `unreadable`.

    `budget_tokens` is the engine's max_num_batched_tokens. A step is dated by its first arrival: later ones of the
    burst waited for the server to write them.
    """
    apart_s = _apart_s(samples)
    bursts = _mended(_bursts(samples, apart_s))
    works, counts = _work(samples, _served(samples, bursts), bursts, budget_tokens)
    return tuple(_told_apart(_dated(samples, bursts, works, counts), apart_s))


def unreadable(samples: Sequence[Sample]) -> str | None:
    """Why steps cannot be read from these requests; None where they can."""
    failed = sum(not sample.ok for sample in samples)
    if failed:
        return f"{failed} of {len(samples)} requests failed, and what they cost the engine is not known"
    events = sum(len(sample.events_s) for sample in samples)
    tokens = sum(sample.output_tokens or 0 for sample in samples)
    if tokens > MOST_TOKENS_PER_EVENT * events:
        return f"{events:,} events for {tokens:,} tokens: steps that came together cannot be told apart"
    gaps = _gaps(samples)
    if not len(gaps):
        return "one token a request: steps cannot be told apart"
    together = float((gaps < TIED_SHARE * gaps.mean()).mean())
    if together > MOST_TIED:
        return f"{together:.0%} of tokens came together with their stream's last one: client or server wrote late"
    return None


def preemptions(samples: Sequence[Sample]) -> int:
    """How many times a running sequence of `samples` was set back."""
    bursts = _mended(_bursts(samples, _apart_s(samples)))
    return sum(again for burst in _served(samples, bursts) for _, token, again in burst if token)


def _gaps(samples: Sequence[Sample]) -> Values:
    """Between the tokens of one stream, all streams."""
    gaps = [np.diff(sample.events_s) for sample in samples if len(sample.events_s) > 1]
    return np.concatenate(gaps) if gaps else np.empty(0)


def _apart_s(samples: Sequence[Sample]) -> float:
    gaps = _gaps(samples)
    if not len(gaps):
        return 0.0
    apart = gaps[gaps > TIED_SHARE * gaps.mean()]
    return BURST_SHARE * float(np.quantile(apart, SHORTEST_SHARE)) if len(apart) else 0.0


def _at_s(burst: _Burst) -> float:
    return min(burst.values())


def _bursts(samples: Sequence[Sample], apart_s: float) -> list[_Burst]:
    bursts: list[_Burst] = []
    last_s = -np.inf
    for at_s, stream in sorted((at_s, number) for number, sample in enumerate(samples) for at_s in sample.events_s):
        if at_s - last_s > apart_s or stream in bursts[-1]:
            bursts.append({})
        bursts[-1][stream] = at_s
        last_s = at_s
    return bursts


def _mended(bursts: list[_Burst]) -> list[_Burst]:
    """Puts together what a stutter of the server's or the client's writing has split.

    A burst joins the one before it if they have no stream in common and most of their streams run on through both. A
    burst that lacks most of the streams that run on through it gets them from the next one.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, burst in enumerate(bursts):
        for stream in burst:
            first.setdefault(stream, number)
            last[stream] = number
    left = [dict(burst) for burst in bursts]
    mended: list[_Burst] = []
    for number, burst in enumerate(left):
        before = mended[-1] if mended else {}
        through = sum(last[stream] > number for stream in before) + sum(first[stream] < number - 1 for stream in burst)
        if not before.keys() & burst.keys() and 2 * through > len(before) + len(burst):
            before.update(burst)
            continue
        if burst:
            mended.append(burst)
        if number + 1 < len(left):
            late = {one for one in left[number + 1] if first[one] < number and one not in burst}
            if len(late) > sum(first[stream] < number for stream in burst):
                burst.update({one: left[number + 1].pop(one) for one in late})
    return mended


def _served(samples: Sequence[Sample], bursts: Sequence[_Burst]) -> list[list[tuple[int, int, bool]]]:
    """For each burst its streams: (stream, which of its tokens from 0, whether its context was computed again)."""
    events = [0] * len(samples)
    produced = [0] * len(samples)
    before = [-1] * len(samples)
    missing = [max(0, (sample.output_tokens or 0) - len(sample.events_s)) for sample in samples]
    served: list[list[tuple[int, int, bool]]] = []
    for number, burst in enumerate(bursts):
        row = []
        for stream in sorted(burst, key=lambda one: samples[one].sent_s):
            skipped = number - before[stream] - 1 if events[stream] else 0
            if skipped == 1 and missing[stream]:  # two tokens came in one event
                missing[stream] -= 1
                produced[stream] += 1
                skipped = 0
            row.append((stream, produced[stream], skipped > 0))
            events[stream] += 1
            produced[stream] += 1
            before[stream] = number
        served.append(row)
    return served


def _work(
    samples: Sequence[Sample], served: list[list[tuple[int, int, bool]]], bursts: Sequence[_Burst], budget: int
) -> tuple[list[Work], list[int]]:
    """The work of each burst's step, and how many steps it took."""
    works, counts, prefills = [], [1] * len(served), []
    for number, row in enumerate(served):
        decodes, begun = _split(samples, row, number)
        works.append(Work(sequences=len(row), new_tokens=len(decodes), context_tokens=sum(decodes)))
        prefills += begun
    rooms = [budget - work.new_tokens for work in works]
    _begun(samples, bursts, prefills, list(rooms), budget)
    for prefill in prefills:
        counts[prefill.begins] += prefill.unseen
        for number, before, new in _chunks(prefill, rooms, budget):
            works[number] = _with(works[number], new, before)
    return works, counts


def _split(
    samples: Sequence[Sample], row: list[tuple[int, int, bool]], number: int
) -> tuple[list[int], list[_Prefill]]:
    """The contexts that decoding streams read, and what has to be computed of the others, first come first."""
    decodes, prefills = [], []
    for stream, token, again in row:
        sample = samples[stream]
        prompt = sample.planned_prompt_tokens if sample.prompt_tokens is None else sample.prompt_tokens
        if token and not again:
            decodes.append(prompt + token - 1)
        else:
            known = 0 if token else min(sample.cached_tokens or 0, prompt - 1)
            prefills.append(_Prefill(stream, prompt + token - known, known, number))
    return decodes, prefills


def _begun(
    samples: Sequence[Sample], bursts: Sequence[_Burst], prefills: Sequence[_Prefill], rooms: list[int], budget: int
) -> None:
    """Finds the step in which each prefill began: the latest that leaves room for all of it, not before it was sent."""
    for prefill in reversed(prefills):
        left, number = prefill.tokens, prefill.ends
        while True:
            new = min(left, max(0, rooms[number]))
            rooms[number] -= new
            left -= new
            earlier = number > 1 and samples[prefill.stream].sent_s <= _at_s(bursts[number - 2])
            if not left or not earlier:
                break
            number -= 1
        prefill.begins, prefill.unseen = number, -(-left // budget)


def _chunks(prefill: _Prefill, rooms: list[int], budget: int) -> Iterator[tuple[int, int, int]]:
    """(burst, tokens in the cache before, new tokens) of each chunk: each as large as its step allows, as vLLM does."""
    places = [(prefill.begins, budget)] * prefill.unseen
    places += [(number, rooms[number]) for number in range(prefill.begins, prefill.ends)]
    done = 0
    for number, room in places:
        new = max(0, min(prefill.tokens - done - 1, room))
        if new:
            yield number, prefill.before + done, new
            done += new
    for number in range(prefill.begins, prefill.ends):
        rooms[number] = 0
    rooms[prefill.ends] -= prefill.tokens - done
    yield prefill.ends, prefill.before + done, prefill.tokens - done


def _with(work: Work, new: int, before: int) -> Work:
    return work._replace(
        new_tokens=work.new_tokens + new,
        prefill_tokens=work.prefill_tokens + new,
        context_tokens=work.context_tokens + before,
        prefill_pairs=work.prefill_pairs + new * (before + new / 2),
    )


def _dated(
    samples: Sequence[Sample], bursts: Sequence[_Burst], works: Sequence[Work], counts: Sequence[int]
) -> Iterator[Seen]:
    last = {stream: number for number, burst in enumerate(bursts) for stream in burst}
    sent = sorted((sample.sent_s, last[number]) for number, sample in enumerate(samples) if number in last)
    open_until, place = -1, 0  # the latest burst of all requests sent so far
    for number, burst in enumerate(bursts):
        began_s = _at_s(bursts[number - 1]) if number else -np.inf
        while place < len(sent) and sent[place][0] <= began_s:
            open_until = max(open_until, sent[place][1])
            place += 1
        from_idle = open_until < number
        if from_idle:
            began_s = sent[place][0]
        yield Seen(
            at_s=_at_s(burst),
            seconds=_at_s(burst) - began_s,
            work=works[number],
            steps=counts[number],
            from_idle=from_idle,
        )


def _told_apart(seen: Iterator[Seen], apart_s: float) -> Iterator[Seen]:
    """Adds a step that seems to have taken no time, as its tokens came late or together, to the one before it."""
    held: Seen | None = None
    for step in seen:
        if held is not None and step.seconds < apart_s and not step.from_idle:
            held = Seen(
                at_s=step.at_s,
                seconds=held.seconds + step.seconds,
                work=_sum(held.work, step.work),
                steps=held.steps + step.steps,
                from_idle=held.from_idle,
            )
            continue
        if held is not None:
            yield held
        held = step
    if held is not None:
        yield held


def _sum(one: Work, other: Work) -> Work:
    return Work(
        sequences=one.sequences + other.sequences,
        new_tokens=one.new_tokens + other.new_tokens,
        prefill_tokens=one.prefill_tokens + other.prefill_tokens,
        context_tokens=one.context_tokens + other.context_tokens,
        prefill_pairs=one.prefill_pairs + other.prefill_pairs,
    )
