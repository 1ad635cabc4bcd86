"""Traffic to draw from: scenarios as a user would write them, small enough to simulate by the thousand."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from loadgen.records import Plan
from loadgen.workload import plan
from loadgen.workload.model import Scenario

Rng = np.random.Generator

# (prompt, output) tokens: quantiles and ranges for a GPU; a CPU gets shorter prompts (`SHRUNK`).
SHAPES: dict[str, tuple[Any, Any]] = {
    "short": ({"range": [32, 256]}, {"range": [16, 64]}),
    "chat": ({"quantiles": {0: 16, 10: 50, 50: 300, 90: 900, 100: 2000}}, {"quantiles": {0: 10, 50: 50, 100: 160}}),
    "long": ({"range": [1000, 6000]}, {"range": [16, 96]}),
    "mixed": (
        {"quantiles": {0: 16, 10: 50, 50: 400, 90: 3000, 100: 8000}},
        {"quantiles": {0: 4, 50: 40, 90: 120, 100: 250}},
    ),
}
SHRUNK = 6  # tokens of a GPU's prompt for one of a CPU's
LONGEST = {"h100": 16_000, "a100": 16_000, "cpu": 1_500}  # prompts of the one-stream sweep


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """One scenario's numbers. `rate_per_s`: adds an open-loop stage; `sweep`: prompts of one stream, from and to."""

    shape: str
    shrunk: int
    concurrency: int
    waves: float
    sweep: tuple[int, int]
    streams: int  # requests in one stream
    decoded: int  # tokens of each of them
    rate_per_s: float | None = None
    arrivals: int = 0
    seed: int = 1

    @property
    def longest_tokens(self) -> int:
        """The longest request that can be drawn, prompt and output."""
        prompts, outputs = SHAPES[self.shape]
        return max(self.sweep[1] + self.decoded, _most(_divided(prompts, self.shrunk)) + _most(outputs))

    def plan(self) -> Plan:
        """The plan of the scenario."""
        prompts, outputs = SHAPES[self.shape]
        stages: list[dict[str, Any]] = [
            {
                "name": "one-stream",
                "concurrency": 1,
                "requests": self.streams,
                "warmup": 1,
                "input_tokens": {"range": list(self.sweep)},
                "output_tokens": self.decoded,
            },
            {
                "name": "saturated",
                "concurrency": self.concurrency,
                "requests": round(self.waves * self.concurrency),
                "warmup": min(self.concurrency, 8),
            },
        ]
        if self.rate_per_s is not None:
            stages.append({"name": "open", "rate": self.rate_per_s, "requests": self.arrivals, "warmup": 2})
        scenario = {
            "name": "planted",
            "seed": self.seed,
            "workload": {"input_tokens": _divided(prompts, self.shrunk), "output_tokens": outputs},
            "stages": stages,
        }
        return plan.build(Scenario.model_validate(scenario))


def _divided(lengths: dict[str, Any], by: int) -> dict[str, Any]:
    if "range" in lengths:
        return {"range": [max(4, value // by) for value in lengths["range"]]}
    return {"quantiles": {share: max(4, value // by) for share, value in lengths["quantiles"].items()}}


def _most(lengths: dict[str, Any]) -> int:
    return int(max(lengths["range"] if "range" in lengths else lengths["quantiles"].values()))


def traffic(rng: Rng, kind: str, shape: str | None = None) -> Traffic:
    """A scenario for a machine of `kind`."""
    concurrency = int(rng.choice([4, 8, 16, 32, 64], p=[0.2, 0.25, 0.25, 0.2, 0.1]))
    return Traffic(
        shape=str(rng.choice(list(SHAPES))) if shape is None else shape,
        shrunk=SHRUNK if kind == "cpu" else 1,
        concurrency=concurrency,
        waves=float(rng.choice([3.0, 4.0, 6.0] if concurrency <= 16 else [3.0])),
        sweep=(64, LONGEST[kind]),
        streams=int(rng.integers(8, 17)),
        decoded=int(rng.integers(24, 49)),
        seed=int(rng.integers(1, 1_000_000)),
    )


def mean_context_tokens(made: Plan) -> float:
    """What a request of the saturated stage holds in the cache, on average over its life."""
    requests = made.stages[1].requests
    weights = [request.output_tokens for request in requests]
    return float(
        np.average([request.prompt_tokens + request.output_tokens / 2 for request in requests], weights=weights)
    )
