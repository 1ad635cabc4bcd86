"""The engine's own account of what it did, under the canonical names of `records.EngineScrape`."""

from loadgen.emulator.model import Model, Sequence, Step
from loadgen.records import EngineScrape

COUNTERS = (
    *("preemptions", "prompt_tokens", "generation_tokens", "prefix_queries", "prefix_hits"),
    *("requests_finished", "iteration_tokens_sum", "iteration_tokens_count", "ttft_sum_s", "ttft_count"),
    *("itl_sum_s", "itl_count", "queue_sum_s", "queue_count", "prefill_sum_s", "prefill_count"),
    *("decode_sum_s", "decode_count"),
)


class Tally:
    """Counters over a process's life and the gauges as of its last step.

    As vLLM counts (vllm/v1/metrics/stats.py and loggers.py, 0.32.0): queue, prefill and decode times when a request
    ends; an iteration only where it yields tokens, and in it the tokens yielded and, of each prompt that is done, what
    was computed of it.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self.gauges = {"kv_usage_ratio": 0.0, "running": 0.0, "waiting": 0.0}

    def note(self, step: Step, model: Model) -> None:
        """Counts what `step` did; `model` is in the state after it."""
        counters = self.counters
        gaps_s, gaps, computed = 0.0, 0, 0
        for sequence in step.yielding:
            events = sequence.events_s
            if len(events) > 1:
                gaps_s += events[-1] - events[-2]
                gaps += 1
            else:
                counters["ttft_sum_s"] += events[0] - sequence.arrived_s
                counters["prompt_tokens"] += sequence.prompt_tokens
                computed += sequence.prompt_tokens - sequence.cached_tokens
        yielded = len(step.yielding)
        counters["itl_sum_s"] += gaps_s
        counters["itl_count"] += gaps
        counters["ttft_count"] += yielded - gaps
        counters["generation_tokens"] += yielded
        if yielded:
            counters["iteration_tokens_sum"] += computed + yielded
            counters["iteration_tokens_count"] += 1
        counters["preemptions"] += len(step.preempted)
        for sequence in step.finished:
            self._ended(sequence)
        counters["prefix_queries"], counters["prefix_hits"] = float(model.prefix_queries), float(model.prefix_hits)
        self.look(model)

    def look(self, model: Model) -> None:
        """Reads the gauges."""
        gauges = self.gauges
        gauges["kv_usage_ratio"] = model.usage_ratio
        gauges["running"] = float(len(model.running))
        gauges["waiting"] = float(len(model.waiting))

    def _ended(self, sequence: Sequence) -> None:
        counters, first_s = self.counters, sequence.events_s[0]
        admitted_s = sequence.arrived_s if sequence.admitted_s is None else sequence.admitted_s
        counters["queue_sum_s"] += admitted_s - sequence.arrived_s
        counters["prefill_sum_s"] += first_s - admitted_s
        counters["decode_sum_s"] += sequence.events_s[-1] - first_s
        for name in ("queue_count", "prefill_count", "decode_count", "requests_finished"):
            counters[name] += 1

    def scrape(self) -> EngineScrape:
        """What /metrics would say now."""
        return EngineScrape(engine="0", values={**self.gauges, **self.counters})
