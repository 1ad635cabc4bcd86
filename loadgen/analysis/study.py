"""An experiment made ready for judging: which blocks count, cut by stage and arm."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.analysis.stats import START_SPREAD
from loadgen.analysis.windows import StageData, stage_data, stage_samples, steady_window
from loadgen.quantities import QUANTITIES
from loadgen.records import ArmSpec, Block, Experiment, ServerFacts, StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """`blocks`: those that count, by arm; `data[stage, arm]`: one entry per such block that has the stage.

    Arms go by `labels`, which are their names, made unique where one name was given twice (an A/A comparison).
    """

    experiment: Experiment
    labels: tuple[str, ...]
    blocks: dict[str, tuple[Block, ...]]
    stages: tuple[StageSpec, ...]
    data: dict[tuple[str, str], tuple[StageData, ...]]
    warnings: tuple[str, ...]

    @property
    def base(self) -> str:
        """The arm that others are held against: the first."""
        return self.labels[0]

    @property
    def test(self) -> str | None:
        """The arm that is compared with the base: the second; None in a run of one arm."""
        return self.labels[1] if len(self.labels) > 1 else None

    @property
    def start_spread(self) -> float:
        """What two starts of one engine may differ by (of the logarithm) that these blocks cannot show.

        Servers that stay up are one start each; with a restart before each block its spread is that of the blocks.
        """
        return START_SPREAD if self.experiment.manifest.restart == "never" else 0.0

    def spec(self, arm: str) -> ArmSpec:
        """An arm as it was asked for."""
        return self.experiment.manifest.arms[self.labels.index(arm)]

    def of(self, stage: str, arm: str) -> tuple[StageData, ...]:
        """The stage's data on an arm, by block."""
        return self.data.get((stage, arm), ())

    def values(self, quantity: str, stage: str, arm: str) -> tuple[float | None, ...]:
        """A quantity by block."""
        extract = QUANTITIES[quantity].extract
        return tuple(extract(data.view) for data in self.of(stage, arm))

    def stage(self, *roles: str) -> StageSpec | None:
        """The first stage with the first of these roles that has one. A cell of a grid stands in for a saturated stage
        only: the one with the most tokens in flight.
        """
        for role in roles:
            held = [spec for spec in self.stages if spec.role == role]
            alone = [spec for spec in held if spec.context_tokens is None]
            if alone:
                return alone[0]
            if held and role == "saturated":
                return max(held, key=lambda spec: (spec.context_tokens or 0) * (spec.concurrency or 0))
        return None

    def facts(self, arm: str) -> ServerFacts:
        """What the arm's server was, from its first block that counts."""
        blocks = self.blocks[arm]
        return blocks[0].facts if blocks else ServerFacts(engine="unknown")


def study(experiment: Experiment) -> Study:
    """Sorts blocks to arms, leaves out broken ones, and cuts the rest by stage."""
    labels = unique(experiment.manifest.arms)
    warnings: list[str] = []
    numbers = [arm_number(experiment, labels, block) for block in experiment.blocks]
    blocks = {
        label: _counting(label, [b for b, n in zip(experiment.blocks, numbers, strict=True) if n == arm], warnings)
        for arm, label in enumerate(labels)
    }
    specs: dict[str, StageSpec] = {}
    for block in experiment.blocks:
        for spec in block.manifest.stages:
            specs.setdefault(spec.name, spec)
    data: dict[tuple[str, str], tuple[StageData, ...]] = {}
    for spec in specs.values():
        steady = _all_steady(spec, [block for held in blocks.values() for block in held], warnings)
        for label, held in blocks.items():
            cut = (stage_data(block, spec, experiment.manifest.slo, steady=steady) for block in held)
            data[spec.name, label] = tuple(one for one in cut if one is not None)
    return Study(
        experiment=experiment,
        labels=labels,
        blocks=blocks,
        stages=tuple(specs.values()),
        data=data,
        warnings=tuple(warnings),
    )


def unique(arms: Sequence[ArmSpec]) -> tuple[str, ...]:
    """The arms' names; the second of the same name becomes `name#2`."""
    labels: list[str] = []
    for arm in arms:
        seen = sum(label.split("#")[0] == arm.name for label in labels)
        labels.append(f"{arm.name}#{seen + 1}" if seen else arm.name)
    return tuple(labels)


def arm_number(experiment: Experiment, labels: Sequence[str], block: Block) -> int | None:
    """Which arm a block belongs to. The experiment's order tells arms of one name apart."""
    manifest, place = experiment.manifest, block.manifest.order
    named = [block.manifest.arm in (arm.name, label) for arm, label in zip(manifest.arms, labels, strict=True)]
    if place < len(manifest.order) and named[manifest.order[place]]:
        return manifest.order[place]
    return named.index(True) if any(named) else None


def _counting(label: str, blocks: Sequence[Block], warnings: list[str]) -> tuple[Block, ...]:
    """Complete blocks; all there are if none is complete. Says what it leaves out."""
    complete = tuple(block for block in blocks if block.end is not None and block.end.how == "complete")
    made_up_for = {block.manifest.order for block in complete}  # by --resume
    broken = [block for block in blocks if block.manifest.order not in made_up_for]
    if not broken:
        return complete
    how = ", ".join(
        f"block {b.manifest.order} {'was cut off' if b.end is None else b.end.how.replace('_', ' ')}" for b in broken
    )
    if complete:
        warnings.append(f"{label}: left out of the comparison: {how}; run again with --resume to complete it")
        return complete
    warnings.append(f"{label}: no block is complete ({how}): what there is of them is used")
    return tuple(blocks)


def _all_steady(spec: StageSpec, blocks: Sequence[Block], warnings: list[str]) -> bool:
    """Whether every block's steady window holds enough; one rule for all, or arms would be cut differently."""
    held = [samples for block in blocks if (samples := stage_samples(block, spec.name))]
    if not held or spec.concurrency is None or spec.concurrency < 2:
        return False
    steady = all(steady_window(spec, samples) is not None for samples in held)
    if not steady:
        warnings.append(
            f"{spec.name}: fewer than two waves of {spec.concurrency} requests ended while all were in flight: "
            f"throughput is over the whole stage, with ramp and drain; plan at least {3 * spec.concurrency} requests"
        )
    return steady
