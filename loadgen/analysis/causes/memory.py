"""Cause 4: the memory that the smaller format freed did not become work."""

from dataclasses import dataclass

import numpy as np

from loadgen.analysis import stats
from loadgen.analysis.case import Case
from loadgen.analysis.wording import digits, times
from loadgen.quantities import text
from loadgen.records import Figure, Finding, StageSpec

FULL_RATIO = 0.9
CROWDED_RATIO = 0.7
FREED_RATIO = 1.05
IDLE = 0.1
MOSTLY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How one arm used its cache in one stage, over its blocks; None = the server does not tell."""

    arm: str
    spec: StageSpec
    usage_peak: float
    usage_mean: float | None
    running_mean: float | None
    running_peak: float | None
    waiting_mean: float | None
    waiting_share: float | None  # of the window's scrapes, those with a queue
    preemptions: float | None
    tokens_per_step: float | None
    capacity_tokens: int | None
    max_num_seqs: int | None

    @property
    def queueing(self) -> bool:
        """Whether a queue stood in the server most of the time; prompts that wait a moment for prefill are none."""
        return self.waiting_share is not None and self.waiting_share >= MOSTLY

    @property
    def at_cap(self) -> bool | None:
        """Whether the batch reached the most sequences that the server takes; None if that number is not known."""
        if self.max_num_seqs is None or self.running_peak is None:
            return None
        return self.running_peak >= self.max_num_seqs

    @property
    def binding(self) -> bool:
        """Whether the cache's capacity held work back: it was full, sequences were evicted, or a queue stood before a
        nearly full cache though the batch had room (a prompt needs its blocks whole before it is let in).
        """
        crowded = self.queueing and self.usage_peak >= CROWDED_RATIO and self.at_cap is False
        return self.usage_peak >= FULL_RATIO or bool(self.preemptions) or crowded

    @property
    def starved(self) -> bool:
        """Whether requests queued beside free memory."""
        return self.queueing and self.usage_peak < FULL_RATIO and not self.binding

    def told(self) -> str:
        """ "KV usage peak 31 %, 0 preemptions, 0.1 waiting"."""
        parts = [f"KV usage peak {text(self.usage_peak, 'ratio')}"]
        parts += [f"{digits(self.preemptions)} preemptions a block"] if self.preemptions is not None else []
        parts += [f"{digits(self.waiting_mean)} waiting on average"] if self.waiting_mean is not None else []
        return ", ".join(parts)


def memory(case: Case, arm: str, spec: StageSpec) -> Memory | None:
    """An arm's use of its cache in a stage; None if the server exports no KV usage."""

    def average(quantity: str) -> float | None:
        return case.average(quantity, spec.name, arm).center

    peaks = stats.known(case.study.values("kv_usage_peak_ratio", spec.name, arm))
    if not peaks:
        return None
    ranks = max((len(s.engines) for one in case.study.of(spec.name, arm) for s in one.scrapes), default=1)
    limit = case.facts(arm).max_num_seqs
    running = stats.known(case.study.values("running_peak", spec.name, arm))
    return Memory(
        arm=arm,
        spec=spec,
        usage_peak=max(peaks),
        usage_mean=average("kv_usage_mean_ratio"),
        running_mean=average("running_mean"),
        running_peak=max(running, default=None),
        waiting_mean=average("waiting_mean"),
        waiting_share=_share_waiting(case, spec, arm),
        preemptions=average("preemptions"),
        tokens_per_step=average("tokens_per_step"),
        capacity_tokens=case.facts(arm).capacity_tokens,
        max_num_seqs=None if limit is None else limit * ranks,
    )


def _share_waiting(case: Case, spec: StageSpec, arm: str) -> float | None:
    queues = [one.view.gauges["waiting"] for one in case.study.of(spec.name, arm)]
    seen = np.concatenate(queues) if queues else np.empty(0)
    return float((seen >= 1).mean()) if len(seen) else None


def unused_memory(case: Case) -> Finding:
    """Holds: capacity never bound the base, requests queued beside free memory, or the batch hardly grew."""
    spec = case.study.stage("saturated", "open_loop")
    if spec is None:
        return _blind("There is no saturated stage: whether freed memory becomes work was not tried.", _ADD_STAGE)
    base, test = memory(case, case.base, spec), memory(case, case.test, spec)
    if base is None or test is None:
        return _blind("The servers export no KV usage: whether memory stood empty is not seen.", _SCRAPE)
    running = running_ratio(case, spec)
    figures = (*_figures(base), *_figures(test), *_capacity(case, base, test), _grown(running))
    if freed(base, test) is False:
        ratio = (test.capacity_tokens or 0) / (base.capacity_tokens or 1)
        claim = f"No memory was freed: {case.test} holds {ratio:.2f}× the tokens of {case.base}."
        advice = (
            "" if case.same_format else "Check that the format is in effect and that both servers get equal memory."
        )
        return Finding(cause="unused memory", verdict="does not hold", claim=claim, evidence=figures, advice=advice)
    if not base.binding:
        claim = f"Capacity was not binding for {case.base} ({base.told()}): more of it could not become more work."
        return Finding(cause="unused memory", verdict="holds", claim=claim, evidence=figures, advice=knob(base))
    return _bound(base, test, running, figures)


_ADD_STAGE = "Add a closed-loop stage with a concurrency that fills the cache."
_SCRAPE = "Let /metrics be scraped (vLLM exports it by default)."


def _blind(claim: str, advice: str) -> Finding:
    return Finding(cause="unused memory", verdict="not observable", claim=claim, advice=advice)


def freed(base: Memory, test: Memory) -> bool | None:
    """Whether the test arm's cache holds more tokens; None if a capacity is not known."""
    if not base.capacity_tokens or not test.capacity_tokens:
        return None
    return test.capacity_tokens / base.capacity_tokens >= FREED_RATIO


def _freed_ratio(base: Memory, test: Memory) -> float:
    """Test's capacity over the base's; where one is not known, the least that counts as freed tenfold."""
    if not base.capacity_tokens or not test.capacity_tokens:
        return 1 + (FREED_RATIO - 1) / IDLE
    return test.capacity_tokens / base.capacity_tokens


def running_ratio(case: Case, spec: StageSpec) -> stats.Contrast:
    """Mean batch of the test arm over the base's."""
    base, test = (case.study.values("running_mean", spec.name, arm) for arm in (case.base, case.test))
    return stats.ratio(base, test)


def _bound(base: Memory, test: Memory, running: stats.Contrast, figures: tuple[Figure, ...]) -> Finding:
    """The base was short of memory: did the test arm put more of it to work?"""
    change = f"mean batch {_number(base.running_mean)} to {_number(test.running_mean)} sequences"
    change += f", preemptions {_number(base.preemptions)} to {_number(test.preemptions)} a block"
    if test.starved:
        claim = f"{test.arm}'s freed memory stands empty beside a queue ({test.told()}); {change}."
        return Finding(cause="unused memory", verdict="holds", claim=claim, evidence=figures, advice=knob(test))
    if running.estimate.hi is not None and running.estimate.hi < 1 + IDLE * (_freed_ratio(base, test) - 1):
        claim = f"Less than a tenth of the freed memory became work ({change})."
        return Finding(cause="unused memory", verdict="holds", claim=claim, evidence=figures, advice=knob(test))
    if running.decided and (running.estimate.center or 0) > 1:
        claim = f"The freed blocks became scheduled work: {change}."
        rest = knob(test) if test.usage_peak < FULL_RATIO and not test.queueing else ""
        return Finding(cause="unused memory", verdict="does not hold", claim=claim, evidence=figures, advice=rest)
    claim = f"Whether the batch grew is not shown ({change}, ratio {times(running.estimate)})."
    advice = "More blocks decide; see the running curve of both arms."
    return Finding(cause="unused memory", verdict="cannot tell", claim=claim, evidence=figures, advice=advice)


def knob(used: Memory) -> str:
    """What held the batch back, by name, and what to turn."""
    peak, wanted = used.running_peak, used.spec.concurrency
    queue = f"while {_number(used.waiting_mean)} wait"
    if used.queueing and used.at_cap:
        return f"{used.arm} runs the most sequences that it may, {used.max_num_seqs}, {queue}: raise `--max-num-seqs`."
    if used.queueing:
        knobs = "`--max-num-seqs` or `--max-num-batched-tokens`, whichever holds it there"
        return f"{used.arm} stands at {_number(peak)} sequences {queue}: raise {knobs}."
    if wanted is not None and peak is not None and peak >= FULL_RATIO * wanted:
        return f"All {wanted} requests of the client run at once: raise the stage's `concurrency` to fill the cache."
    if used.spec.role == "open_loop":
        return "The server keeps up with the arrivals: raise the stage's `rate` to fill the cache."
    return "Raise the stage's `concurrency`, or its prompt and output lengths, until the cache is full."


def _number(value: float | None) -> str:
    return "unknown" if value is None else digits(value)


def _figures(used: Memory) -> tuple[Figure, ...]:
    running = f"mean {_number(used.running_mean)}, peak {_number(used.running_peak)}"
    if used.max_num_seqs is not None:
        running += f" of at most {used.max_num_seqs}"
    usage = f"mean {text(used.usage_mean, 'ratio')}, highest of all blocks {text(used.usage_peak, 'ratio')}"
    rows = (
        ("KV usage", usage),
        ("running", running),
        ("waiting", f"mean {_number(used.waiting_mean)}, a queue in {text(used.waiting_share, 'ratio')} of scrapes"),
        ("preemptions", f"{_number(used.preemptions)} a block"),
        ("tokens per step", _number(used.tokens_per_step)),
    )
    source = f"/metrics, {used.spec.name}"
    return tuple(Figure(label=f"{used.arm}: {label}", value=value, source=source) for label, value in rows)


def _capacity(case: Case, base: Memory, test: Memory) -> tuple[Figure, ...]:
    if not base.capacity_tokens or not test.capacity_tokens:
        return ()
    ratio = test.capacity_tokens / base.capacity_tokens
    value = f"{base.capacity_tokens:,} to {test.capacity_tokens:,} tokens, {ratio:.2f}×"
    predicted = predicted_capacity(case)
    if predicted is not None:
        value += f" ({predicted:.2f}× predicted from the formats)"
    return (Figure(label="capacity", value=value, source="facts of the servers"),)


def predicted_capacity(case: Case) -> float | None:
    """By how much the test format should multiply the capacity; None if nobody knows."""
    base, test = case.facts(case.base).kv_dtype, case.facts(case.test).kv_dtype
    return None if base is None or test is None else case.predicted_ratio(base, test)


def capacity_doubts(case: Case, tolerance: float = 0.05) -> tuple[str, ...]:
    """Where the capacity read back is not what the formats' sizes predict: a flag ignored, or scales not stored."""
    base, test = case.facts(case.base).capacity_tokens, case.facts(case.test).capacity_tokens
    predicted = predicted_capacity(case)
    if not base or not test or predicted is None or abs(test / base / predicted - 1) <= tolerance:
        return ()
    return (
        f"capacity: {case.test} holds {test / base:.2f}× the tokens of {case.base}, its format predicts "
        f"{predicted:.2f}×: is the format in effect, and did both servers get equal memory?",
    )


def _grown(running: stats.Contrast) -> Figure:
    return Figure(label="mean batch, test / base", value=times(running.estimate), source="/metrics")
