"""What makes one step, one process and one hour differ from the next: seeded, so that every run can be had again."""

import math
from dataclasses import dataclass

import numpy as np

BATCH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSpec:
    """Spreads are standard deviations of the logarithm (0.05 = about 5 %); the median of every factor is 1."""

    step: float = 0.0  # of each step, independent
    start: float = 0.0  # of each process start: one factor until it ends
    wander: float = 0.0  # slow wandering that both arms share (a machine's other load), stationary
    wander_s: float = 60.0  # its correlation time
    drift_per_hour: float = 0.0  # relative slowdown, linear in the log
    hiccups_per_minute: float = 0.0  # pauses at random times
    hiccup_s: float = 0.05  # mean length of one, exponential


class Noise:
    """Stretches durations: one per process. Processes with the same `machine_seed` share one machine's wandering."""

    def __init__(self, spec: NoiseSpec, *, seed: tuple[int, ...], machine_seed: tuple[int, ...] = (0,)) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)
        self._machine = np.random.default_rng(machine_seed)
        self._start = spec.start * float(self._rng.standard_normal())
        self._steps: list[float] = []
        self._wander = spec.wander * float(self._machine.standard_normal())
        self._cell = 0
        self._next_hiccup_s = self._gap_s()

    def stretched(self, seconds: float, now_s: float) -> float:
        """`seconds` of work begun at `now_s` (on the machine's clock, never going back) as it really takes."""
        spec = self._spec
        log = self._start + spec.drift_per_hour * now_s / 3600
        if spec.step:
            if not self._steps:
                self._steps = self._rng.standard_normal(BATCH).tolist()
            log += spec.step * self._steps.pop()
        if spec.wander:
            log += self._wandered(now_s)
        took = seconds * math.exp(log) if log else seconds
        return took + self._hiccup_s(now_s, now_s + took) if spec.hiccups_per_minute else took

    def _wandered(self, now_s: float) -> float:
        # An Ornstein-Uhlenbeck process on a grid of a tenth of its correlation time: the same values for every
        # process that asks, whenever it asks.
        spec = self._spec
        cell = int(now_s / (spec.wander_s / 10))
        kept = math.exp(-0.1)
        while self._cell < cell:
            self._cell += 1
            pushed = spec.wander * math.sqrt(1 - kept**2) * float(self._machine.standard_normal())
            self._wander = kept * self._wander + pushed
        return self._wander

    def _gap_s(self) -> float:
        rate = self._spec.hiccups_per_minute / 60
        return float(self._rng.exponential(1 / rate)) if rate else math.inf

    def _hiccup_s(self, from_s: float, until_s: float) -> float:
        lost = 0.0
        while self._next_hiccup_s <= until_s + lost:
            if self._next_hiccup_s > from_s:  # one while nothing ran delays nobody
                lost += float(self._rng.exponential(self._spec.hiccup_s))
            self._next_hiccup_s += self._gap_s()
        return lost
