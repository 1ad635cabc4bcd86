"""What the emulated engine counts about itself, as vLLM does (vllm/v1/metrics/stats.py, 0.32.0)."""

from bisect import bisect_left
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from loadgen.emulator.model import Model, Sequence, Step

# vllm/v1/metrics/buckets.py, 0.32.0
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def token_bounds(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `most`."""
    found = []
    unit = 1
    while unit <= most:
        found += [unit * factor for factor in (1, 2, 5) if unit * factor <= most]
        unit *= 10
    return tuple(found)


class Histogram:
    """Counts by upper bound, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Items[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """One observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True, kw_only=True)
class Account:
    """Counters and histograms over the process's life, gauges as of the last step, arrival or abort."""

    max_model_len: int
    running: int = 0
    waiting: int = 0
    usage_ratio: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0, "error": 0})
    steps: int = 0
    late_steps: int = 0
    late_s: float = 0.0
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tokens = token_bounds(self.max_model_len)
        bounds: dict[str, Items[float]] = {
            **dict.fromkeys(("e2e", "queue", "inference", "prefill", "decode"), REQUEST_S),
            **dict.fromkeys(("request_prompt", "request_generation"), tokens),
            **{"ttft": TTFT_S, "itl": ITL_S, "tpot": ITL_S, "step_tokens": STEP_TOKENS, "preempted": PREEMPTIONS},
        }
        self.histograms = {name: Histogram(bound) for name, bound in bounds.items()}

    def gauge(self, model: Model) -> None:
        """Reads the gauges."""
        self.running, self.waiting, self.usage_ratio = len(model.running), len(model.waiting), model.usage_ratio
        self.prefix_queries, self.prefix_hits = model.prefix_queries, model.prefix_hits

    def note(self, step: Step, model: Model) -> None:
        """Counts what a step did; `model` is in the state after it."""
        self.gauge(model)
        self.steps += 1
        self.preemptions += len(step.preempted)
        self.generation_tokens += len(step.yielding)
        self.histograms["step_tokens"].add(step.work.new_tokens)
        gaps, firsts = self.histograms["itl"], self.histograms["ttft"]
        for sequence in step.yielding:
            events = sequence.events_s
            if len(events) > 1:
                gaps.add(events[-1] - events[-2])
            else:
                firsts.add(events[0] - sequence.arrived_s)
                self.prompt_tokens += sequence.prompt_tokens
                self.cached_tokens += sequence.cached_tokens

    def aborted(self) -> None:
        """A client has gone."""
        self.finished["abort"] += 1

    def late(self, seconds: float) -> None:
        """A step's tokens came late."""
        self.late_steps += 1
        self.late_s += seconds

    def end(self, sequence: Sequence, reason: str) -> None:
        """A request has all its tokens."""
        arrived_s, events, made = sequence.arrived_s, sequence.events_s, sequence.produced
        admitted_s = arrived_s if sequence.admitted_s is None else sequence.admitted_s
        observed: dict[str, float] = {
            "e2e": events[-1] - arrived_s,
            "queue": admitted_s - arrived_s,
            "prefill": events[0] - admitted_s,
            "decode": events[-1] - events[0],
            "inference": events[-1] - admitted_s,
            "tpot": (events[-1] - events[0]) / (made - 1) if made > 1 else 0.0,
            "request_prompt": sequence.prompt_tokens,
            "request_generation": made,
            "preempted": sequence.preemptions,
        }
        for name, value in observed.items():
            self.histograms[name].add(value)
        self.finished[reason] += 1
