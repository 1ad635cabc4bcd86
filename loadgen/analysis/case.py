"""What a cause is judged on: everything that was measured and may be used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loadgen.analysis import stats
from loadgen.analysis.decompose import Decode, Prefill
from loadgen.analysis.study import Study
from loadgen.analysis.unintended import dtype
from loadgen.analysis.wording import listed
from loadgen.records import BackendSeen, Difference, Estimate, Figure, ServerFacts

PredictedRatio = Callable[[str, str], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Base against test. `decode` and `prefill` are None where there is no one stream, or where it may not be used.

    `refused`: stages whose work differs between the arms.
    """

    study: Study
    differences: Mapping[tuple[str, str], Difference]
    decode: Decode | None
    prefill: Prefill | None
    predicted_ratio: PredictedRatio
    refused: frozenset[str] = frozenset()

    @property
    def base(self) -> str:
        """The base arm's name."""
        return self.study.base

    @property
    def test(self) -> str:
        """The test arm's name."""
        return self.study.test or ""

    def facts(self, arm: str) -> ServerFacts:
        """What the arm's server was."""
        return self.study.facts(arm)

    def backends(self, arm: str) -> tuple[BackendSeen, ...]:
        """Every backend seen on the arm, over its blocks."""
        seen = {b.name: b for block in self.study.blocks[arm] for b in block.facts.backends}
        return tuple(seen[name] for name in sorted(seen))

    def difference(self, stage: str, quantity: str) -> Difference | None:
        """A comparison, if there is one."""
        return self.differences.get((stage, quantity))

    def average(self, quantity: str, stage: str, arm: str) -> Estimate:
        """A quantity over the arm's blocks."""
        return stats.mean(self.study.values(quantity, stage, arm))

    def missing_stage(self, wanted: str) -> str:
        """What to do where one stream cannot be used: plan the stage, or mend what spoiled it."""
        if self.study.stage("one_stream") is None:
            return f"Add a stage with {wanted} to the scenario."
        return "The stage was driven, but its figures are withdrawn: the warnings say why; mend that and run again."

    @property
    def same_format(self) -> str | None:
        """The dtype that both caches hold, where it is known to be one; then nothing was quantized."""
        kinds = {dtype(self.facts(arm).kv_dtype) for arm in (self.base, self.test)}
        known = all(self.facts(arm).kv_dtype_how in ("log", "endpoint") for arm in (self.base, self.test))
        return kinds.pop() if known and len(kinds) == 1 and None not in kinds else None


def backend_figure(case: Case, arm: str) -> Figure:
    """The arm's backends with how each was learned."""
    seen = case.backends(arm)
    value = ", ".join(f"{b.name} ({b.how})" for b in seen) or "unknown"
    lines = [b.line for b in seen if b.line]
    return Figure(label=f"{arm}'s attention backend", value=value, source="; ".join(lines) or "facts of the server")


def changed_backend(case: Case) -> str:
    """Which attention backends ran the arms, where they are known and not the same; else ""."""
    seen = {arm: case.backends(arm) for arm in (case.base, case.test)}
    if not all(seen.values()) or any(b.how == "unknown" for found in seen.values() for b in found):
        return ""
    names = {arm: {b.name for b in found} for arm, found in seen.items()}
    if names[case.base] == names[case.test]:
        return ""
    return ", ".join(f"{listed(sorted(found))} ran {arm}" for arm, found in names.items())
