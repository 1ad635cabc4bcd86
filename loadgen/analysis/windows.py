"""One stage of one block, cut to what is measured: which requests, which stretch of time, which readings."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.analysis import scrapes as readings
from loadgen.quantities import StageView
from loadgen.records import Block, Health, Sample, Scrape, Slo, StageMark, StageSpec

PARTS = 10
STEADY_WAVES = 2
SEVERAL = 1.05  # tokens per event; servers hold back half characters
SAME_S = 1e-6  # instants that were told from two origins are one to rounding only

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageData:
    """One stage of one block. `view` is read by the table of quantities; `parts` and `part_durations_s` carry the
    noise within the block: the requests dealt into ten hands by index, and the time of each tenth of the tokens.
    """

    spec: StageSpec
    block: Block
    mark: StageMark | None
    samples: tuple[Sample, ...]  # without warm-up
    ok: tuple[Sample, ...]
    scrapes: tuple[Scrape, ...]
    health: tuple[Health, ...]
    start_s: float
    end_s: float
    window: tuple[float, float]
    steady: bool
    view: StageView
    parts: tuple[StageView, ...]
    part_durations_s: tuple[float, ...]


def stage_samples(block: Block, stage: str) -> tuple[Sample, ...]:
    """The measured requests of a stage, by index."""
    found = (sample for sample in block.samples if sample.stage == stage and not sample.warmup)
    return tuple(sorted(found, key=lambda sample: sample.index))


def steady_window(spec: StageSpec, samples: Sequence[Sample]) -> tuple[float, float] | None:
    """From the instant the wanted concurrency was first reached to the instant the last request was sent.

    None for one stream and for an open loop (they have no ramp that matters and no full batch to drain), and where
    fewer than two full waves of requests (2 x concurrency) ended within. Whether it holds follows from the plan
    alone (N - C of N requests end before the last is sent), so that all arms are cut alike.
    """
    wanted = spec.concurrency
    if wanted is None or wanted < 2 or not samples:
        return None
    changes = sorted([(sample.sent_s, 1) for sample in samples] + [(sample.end_s, -1) for sample in samples])
    in_flight, full_s = 0, None
    for at_s, change in changes:
        in_flight += change
        if in_flight >= wanted:
            full_s = at_s
            break
    last_s = max(sample.sent_s for sample in samples)
    if full_s is None or last_s <= full_s:
        return None
    ended = sum(full_s < sample.end_s <= last_s + SAME_S for sample in samples)
    return (full_s, last_s) if ended >= STEADY_WAVES * wanted else None


def tokens_per_event(sample: Sample) -> float:
    """How many tokens an event stands for: the server's count over the events; 1 where it gave none."""
    if not sample.events_s or not sample.output_tokens:
        return 1.0
    return sample.output_tokens / len(sample.events_s)


def mean_per_event(held: Iterable[StageData]) -> float:
    """The mean of `tokens_per_event` over all requests that ended well; 1 if there are none."""
    found = [tokens_per_event(sample) for one in held for sample in one.ok]
    return sum(found) / len(found) if found else 1.0


def several_per_event(samples: Iterable[Sample]) -> bool:
    """Whether any of these streams put more than one token into an event."""
    return any(tokens_per_event(sample) > SEVERAL for sample in samples)


def stage_data(block: Block, spec: StageSpec, slo: Slo, *, steady: bool) -> StageData | None:
    """The stage in this block; None if nothing of it was sent. `steady`: cut to the steady window."""
    samples = stage_samples(block, spec.name)
    if not samples:
        return None
    ok = tuple(sample for sample in samples if sample.ok and sample.events_s)
    mark = next((mark for mark in block.marks if mark.stage == spec.name and not mark.warmup), None)
    start_s, end_s = min(sample.sent_s for sample in samples), max(sample.end_s for sample in samples)
    window = (steady_window(spec, samples) if steady else None) or (start_s, end_s)
    scrapes = readings.good(block.scrapes)
    health = watched(block.health, start_s, end_s)
    instants, weights = _token_arrivals(ok)
    return StageData(
        spec=spec,
        block=block,
        mark=mark,
        samples=samples,
        ok=ok,
        scrapes=readings.around(scrapes, start_s, end_s),
        health=health,
        start_s=start_s,
        end_s=end_s,
        window=window,
        steady=window != (start_s, end_s),
        view=StageView(
            latencies=latencies(ok),
            window_s=_positive(window[1] - window[0]),
            window_output_tokens=float(weights[(instants >= window[0]) & (instants <= window[1])].sum()),
            window_prompt_tokens=_prompt_tokens(ok, window),
            stage_s=_positive(end_s - start_s),
            ok=len(ok),
            good=_good(ok, slo),
            counters=readings.growth(scrapes, start_s, end_s),
            lag_s=_sorted(sample.lag_s for sample in samples),
            gauges={name: readings.gauge(scrapes, name).between(*window).values for name in readings.GAUGES},
            peaks=_peaks(scrapes, (start_s, end_s)),
            loop_lag_max_s=max((h.loop_lag_max_s for h in health), default=None),
            client_cpu_ratio=_cpu_ratio(health),
        ),
        parts=_parts(ok),
        part_durations_s=_part_durations(instants, weights, window),
    )


def latencies(samples: Sequence[Sample]) -> dict[str, Values]:
    """Each latency of these requests, seconds, sorted upwards; ITL: all gaps of all requests, one per event."""
    gaps = [np.diff(np.asarray(sample.events_s)) for sample in samples if len(sample.events_s) > 1]
    return {
        "ttft": _sorted(sample.ttft_s for sample in samples),
        "ttft_from_due": _sorted(sample.ttft_from_due_s for sample in samples),
        "itl": np.sort(np.concatenate(gaps)) if gaps else np.empty(0),
        "tpot": _sorted(sample.tpot_s for sample in samples),
        "e2e": _sorted(sample.e2e_s for sample in samples),
    }


def _sorted(values: Iterable[float | None]) -> Values:
    return np.sort(np.array([value for value in values if value is not None], dtype=np.float64))


def _positive(length_s: float) -> float | None:
    return length_s if length_s > 0 else None


def _token_arrivals(samples: Sequence[Sample]) -> tuple[Values, Values]:
    """Every event's instant, in order of time, and how many tokens it stands for."""
    if not samples:
        return np.empty(0), np.empty(0)
    instants = np.concatenate([np.asarray(sample.events_s) for sample in samples])
    weights = np.repeat([tokens_per_event(sample) for sample in samples], [len(s.events_s) for s in samples])
    order = np.argsort(instants, kind="stable")
    return instants[order], weights[order]


def _prompt_tokens(samples: Sequence[Sample], window: tuple[float, float]) -> float:
    return float(
        sum(
            sample.planned_prompt_tokens if sample.prompt_tokens is None else sample.prompt_tokens
            for sample in samples
            if window[0] <= sample.events_s[0] <= window[1]
        )
    )


def meets(sample: Sample, slo: Slo) -> bool:
    """Whether a request that ended well met the SLO; its TTFT counts from due where it had a due time."""
    ttft = sample.ttft_s if sample.ttft_from_due_s is None else sample.ttft_from_due_s
    seen = ((slo.ttft_s, ttft), (slo.tpot_s, sample.tpot_s), (slo.e2e_s, sample.e2e_s))
    return all(bound is None or value is None or value <= bound for bound, value in seen)


def _good(samples: Sequence[Sample], slo: Slo) -> int | None:
    if slo == Slo():
        return None
    return sum(meets(sample, slo) for sample in samples)


def _peaks(scrapes: Sequence[Scrape], whole: tuple[float, float]) -> dict[str, float]:
    highs = {name: readings.gauge(scrapes, name).between(*whole).high for name in readings.GAUGES}
    return {name: float(high.max()) for name, high in highs.items() if len(high)}


def watched(health: Sequence[Health], start_s: float, end_s: float) -> tuple[Health, ...]:
    """The watch intervals that lie within the stage; those that overlap it where it is too short to hold one.

    Between stages the client makes bodies and settles its memory: an interval that reaches out of the stage would
    blame the stage for that.
    """
    within = tuple(h for h in health if h.at_s - h.interval_s >= start_s and h.at_s <= end_s)
    return within or tuple(h for h in health if start_s <= h.at_s <= end_s + h.interval_s)


def _cpu_ratio(health: Sequence[Health]) -> float | None:
    watched_s = sum(h.interval_s for h in health)
    return sum(h.cpu_s for h in health) / watched_s if watched_s > 0 else None


def _parts(samples: Sequence[Sample]) -> tuple[StageView, ...]:
    """The requests dealt by index into at most ten hands, so that part k holds the same requests in every block."""
    hands = min(PARTS, 1 + max((sample.index for sample in samples), default=0))
    return tuple(
        StageView(latencies=latencies([sample for sample in samples if sample.index % hands == hand]))
        for hand in range(hands)
    )


def _part_durations(instants: Values, weights: Values, window: tuple[float, float]) -> tuple[float, ...]:
    """How long each successive tenth of the window's tokens took, seconds."""
    within = (instants >= window[0]) & (instants <= window[1])
    instants, weights = instants[within], weights[within]
    if len(instants) < 2 * PARTS:
        return ()
    done = np.cumsum(weights)
    ends = instants[np.searchsorted(done, done[-1] * np.arange(1, PARTS) / PARTS)]
    return tuple(float(length) for length in np.diff([window[0], *ends, window[1]]))


def contexts(samples: Sequence[Sample]) -> Values:
    """Context (prompt + tokens so far) at which each output token after the first was decoded, one per token."""
    ranges = []
    for sample in samples:
        prompt = sample.planned_prompt_tokens if sample.prompt_tokens is None else sample.prompt_tokens
        tokens = len(sample.events_s) if sample.output_tokens is None else sample.output_tokens
        ranges.append(prompt + np.arange(1, max(1, math.floor(tokens)), dtype=np.float64))
    return np.concatenate(ranges) if ranges else np.empty(0)
