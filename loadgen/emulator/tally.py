"""The engine's own account of what it did, under the canonical names of `records.EngineScrape`."""

from loadgen.emulator.model import Model, Step
from loadgen.records import EngineScrape


class Tally:
    """Counters over a process's life and the gauges as of its last step."""

    def __init__(self) -> None:
        self.counters: dict[str, float] = dict.fromkeys(
            (
                *("preemptions", "prompt_tokens", "generation_tokens", "prefix_queries", "prefix_hits"),
                *("requests_finished", "iteration_tokens_sum", "iteration_tokens_count", "ttft_sum_s", "ttft_count"),
                *("itl_sum_s", "itl_count", "queue_sum_s", "queue_count", "prefill_sum_s", "prefill_count"),
                *("decode_sum_s", "decode_count"),
            ),
            0.0,
        )
        self.gauges = {"kv_usage_ratio": 0.0, "running": 0.0, "waiting": 0.0}

    def note(self, step: Step, model: Model) -> None:
        """Counts what `step` did; `model` is in the state after it (vllm/v1/metrics/stats.py, IterationStats)."""
        counters = self.counters
        first = 0
        for sequence in step.yielding:
            events = sequence.events_s
            if len(events) > 1:
                counters["itl_sum_s"] += events[-1] - events[-2]
            else:
                first += 1
                admitted_s = sequence.arrived_s if sequence.admitted_s is None else sequence.admitted_s
                counters["ttft_sum_s"] += events[0] - sequence.arrived_s
                counters["queue_sum_s"] += admitted_s - sequence.arrived_s
                counters["prefill_sum_s"] += events[0] - admitted_s
                counters["prompt_tokens"] += sequence.prompt_tokens
        for name in ("ttft_count", "queue_count", "prefill_count"):
            counters[name] += first
        counters["itl_count"] += len(step.yielding) - first
        counters["generation_tokens"] += len(step.yielding)
        counters["preemptions"] += len(step.preempted)
        counters["iteration_tokens_sum"] += step.work.new_tokens
        counters["iteration_tokens_count"] += 1
        for sequence in step.finished:
            counters["decode_sum_s"] += sequence.events_s[-1] - sequence.events_s[0]
        counters["decode_count"] += len(step.finished)
        counters["requests_finished"] += len(step.finished)
        counters["prefix_queries"], counters["prefix_hits"] = float(model.prefix_queries), float(model.prefix_hits)
        self.gauges = {
            "kv_usage_ratio": model.usage_ratio,
            "running": float(len(model.running)),
            "waiting": float(len(model.waiting)),
        }

    def scrape(self) -> EngineScrape:
        """What /metrics would say now."""
        return EngineScrape(engine="0", values={**self.gauges, **self.counters})
