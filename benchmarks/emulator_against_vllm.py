"""Does the emulator foretell a real vLLM? Fitted to some runs, held against others that the fit has not seen.

    python benchmarks/emulator_against_vllm.py --fit RUN_DIR --predict RUN_DIR [--predict RUN_DIR ...] [--model FOLDER]

RUN_DIRs are comparisons of a 16-bit arm with a quantized one, measured by `loadgen compare` on one quiet machine:
`--fit` say of scenario `demo`, `--predict` of another, such as `medium-prompts`:

    for scenario in demo medium-prompts; do
        loadgen compare $scenario --arm bf16 --arm fp8 --shared deploy/vllm/tiny-cpu.yaml --model .cache/tiny-llama \
            --restart never --repeats 4 --out runs/against-$scenario
    done
    python benchmarks/emulator_against_vllm.py --fit runs/against-demo --predict runs/against-medium-prompts \
        --model .cache/tiny-llama > docs/emulator-against-vllm.md

Printed, as Markdown: the fit; the 16-bit arm in scenarios that were not fitted; the quantized arm, once with the 16-bit
fit and its smaller tokens alone, once with its own terms fitted to its one-stream stage of the `--fit` run; and what
the tables say of where the emulator fails. The quantized arm's saturated stages are never fitted.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from loadgen.cli.calibrate import Row, agreement, resimulated
from loadgen.emulator import fit_shape
from loadgen.emulator.fit import Calibration, calibrated, with_format
from loadgen.emulator.fit_run import FULL, Known
from loadgen.emulator.fit_text import explained
from loadgen.emulator.profile import Profile
from loadgen.quantities import QUANTITIES
from loadgen.records import Experiment, Plan
from loadgen.store import read_experiment, read_once

SAME = 0.10  # relative error up to which a prediction counts as good
NOTABLE = 0.25  # beyond it, as failed
FEW = 5  # preemptions a block, below which a ratio says nothing


def arms_of(run: Experiment, *, full: bool) -> Experiment:
    """The run with its 16-bit arms alone, or with the others alone; blocks numbered anew."""
    sixteen = {block.manifest.arm for block in run.blocks if block.facts.kv_dtype in FULL}
    arms = [number for number, arm in enumerate(run.manifest.arms) if (arm.name in sixteen) == full]
    places = [place for place, number in enumerate(run.manifest.order) if number in arms]
    blocks = tuple(
        msgspec.structs.replace(
            block, manifest=msgspec.structs.replace(block.manifest, order=places.index(block.manifest.order))
        )
        for block in run.blocks
        if block.manifest.order in places
    )
    manifest = msgspec.structs.replace(
        run.manifest,
        arms=tuple(run.manifest.arms[number] for number in arms),
        order=tuple(arms.index(run.manifest.order[place]) for place in places),
    )
    return msgspec.structs.replace(run, manifest=manifest, blocks=blocks)


def table(title: str, rows: Sequence[Row]) -> Iterator[str]:
    """One prediction as a Markdown table."""
    yield f"\n### {title}\n"
    yield "| stage | quantity | measured | predicted | error |\n|---|---|---:|---:|---:|"
    for row in rows:
        measured, predicted, error = row.texts
        yield f"| {row.stage} | {QUANTITIES[row.quantity].label} | {measured} | {predicted} | {error} |"
    good = sum(abs(error) <= SAME for error in _errors(rows))
    yield f"\nWithin {SAME:.0%}: {good} of {len(list(_errors(rows)))}."


def _errors(rows: Sequence[Row]) -> Iterator[float]:
    yield from (row.error_ratio for row in rows if row.error_ratio is not None and not _too_few(row))


def _too_few(row: Row) -> bool:
    return row.quantity == "preemptions" and max(row.measured, row.simulated) < FEW


def failures(title: str, rows: Sequence[Row]) -> Iterator[str]:
    """What a prediction has wrong by more than a quarter."""
    for row in rows:
        error = row.error_ratio if row.error_ratio is not None else (1.0 if row.simulated else 0.0)
        if abs(error) > NOTABLE and not _too_few(row):
            measured, predicted, _ = row.texts
            label = QUANTITIES[row.quantity].label
            yield f"* {title}, {row.stage}: {label} measured {measured}, predicted {predicted}"


def predictions(
    fit_run: Experiment, runs: Sequence[tuple[Experiment, Plan]], calibration: Calibration, known: Known
) -> Iterator[tuple[str, Profile, Experiment, Plan]]:
    """(title, profile, what was measured, plan) of everything that is foretold."""
    first = fit_run.manifest.scenario
    for run, plan in runs:
        scenario = run.manifest.scenario
        if scenario != first and arms_of(run, full=True).blocks:
            yield (
                f"16 bits in {scenario}, fitted to 16 bits in {first}",
                calibration.profile,
                arms_of(run, full=True),
                plan,
            )
    quantized = arms_of(fit_run, full=False)
    if not quantized.blocks:
        return
    bytes_alone = with_format(calibration, quantized, known, role=None)
    own_terms = with_format(calibration, quantized, known, role="one_stream")
    for run, plan in runs:
        other, scenario = arms_of(run, full=False), run.manifest.scenario
        if not other.blocks:
            continue
        names = ", ".join(arm.name for arm in other.manifest.arms)
        yield f"{names} in {scenario}, from the 16-bit fit and its bytes per token alone", bytes_alone, other, plan
        yield f"{names} in {scenario}, with its own terms fitted to one stream of {first}", own_terms, other, plan


def main() -> None:
    """Reads, fits, foretells, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=Path, required=True)
    parser.add_argument("--predict", type=Path, action="append", default=[])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folders = [options.fit, *(folder for folder in options.predict if folder != options.fit)]
    runs = [(read_experiment(folder), read_once(folder, Plan)) for folder in folders]
    lacking = [str(folder) for folder, (_, plan) in zip(folders, runs, strict=True) if plan is None]
    if lacking:
        parser.error(f"no plan.json in {', '.join(lacking)}")
    whole = [(run, plan) for run, plan in runs if plan is not None]
    known = Known(name="fitted", shape=fit_shape.from_model(options.model) if options.model else None)
    calibration = calibrated(arms_of(whole[0][0], full=True), known)
    print(f"# The emulator against a real vLLM\n\n{calibration.profile.source}.\n\n{explained(calibration.fitted)}")
    own = arms_of(whole[0][0], full=True)
    title = f"The fitted run itself: 16 bits in {own.manifest.scenario}"
    print(
        "\n".join(
            table(title, list(agreement(own, resimulated(calibration.profile, own, whole[0][1], seed=options.seed))))
        )
    )
    print("\n## Foretold")
    wrong: list[str] = []
    for title, profile, run, plan in predictions(whole[0][0], whole, calibration, known):
        rows = list(agreement(run, resimulated(profile, run, plan, seed=options.seed)))
        print("\n".join(table(title, rows)))
        wrong += failures(title, rows)
    print(f"\n## Where it fails (off by more than {NOTABLE:.0%})\n")
    print("\n".join(wrong or ["Nowhere in these runs."]))


if __name__ == "__main__":
    main()
