"""`loadgen calibrate RUN_DIR`: a measured run becomes an emulator's profile, which is then held against the run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from loadgen.analysis.stats import known as known_values
from loadgen.analysis.study import Study, study
from loadgen.cli.show import Page
from loadgen.emulator import fit_shape
from loadgen.emulator.fit import calibrated, engines
from loadgen.emulator.fit_run import Known
from loadgen.emulator.fit_text import as_yaml, lines
from loadgen.emulator.profile import Profile
from loadgen.errors import UserError
from loadgen.experiment.simulate import simulated
from loadgen.quantities import QUANTITIES, text
from loadgen.records import Experiment, Plan
from loadgen.report.write import write_file
from loadgen.store import read_experiment, read_once

COMPARED = ("output_tokens_per_s", "ttft_p50_s", "ttft_p99_s", "itl_p50_s", "running_mean", "preemptions")
SCRAPED = ("running_mean",)  # of one stream this is the share of scrapes that fell into a request: no use


PROFILE_KEYS = {b"step:", b"formats:"}  # lines that every written profile has


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity of one stage on one arm: means over blocks."""

    stage: str
    arm: str
    quantity: str
    measured: float
    simulated: float

    @property
    def error_ratio(self) -> float | None:
        """(simulated - measured) / measured; None where nothing was measured to divide by."""
        return self.simulated / self.measured - 1 if self.measured else None

    @property
    def texts(self) -> tuple[str, str, str]:
        """Measured, simulated and the error, for a person."""
        unit = QUANTITIES[self.quantity].unit
        error = "" if self.error_ratio is None else f"{self.error_ratio:+.1%}"
        return text(self.measured, unit), text(self.simulated, unit), error


def resimulated(profile: Profile, run: Experiment, plan: Plan, *, seed: int) -> Experiment:
    """The run's own plan, arms and order on the profile's engines, in virtual time.

    Without the noise that sets blocks apart: with it, one simulation would say what luck it had.
    """
    level = profile.noise.model_copy(update={"start": 0.0, "wander": 0.0, "drift_per_hour": 0.0})
    return simulated(run.manifest, plan, engines(profile.model_copy(update={"noise": level}), run), seed=seed)


def agreement(measured: Experiment, other: Experiment) -> Iterator[Row]:
    """What was measured beside what was simulated, by stage, arm and quantity."""
    seen, found = study(measured), study(other)
    for spec in seen.stages:
        for arm in seen.labels:
            for quantity in COMPARED:
                if quantity in SCRAPED and spec.concurrency == 1:
                    continue
                values = _means((seen, found), quantity, spec.name, arm)
                if values is not None:
                    yield Row(stage=spec.name, arm=arm, quantity=quantity, measured=values[0], simulated=values[1])


def _means(studies: Sequence[Study], quantity: str, stage: str, arm: str) -> tuple[float, float] | None:
    kept = [known_values(one.values(quantity, stage, arm)) for one in studies]
    if not all(kept):
        return None
    return sum(kept[0]) / len(kept[0]), sum(kept[1]) / len(kept[1])


@click.command("calibrate")
@click.argument("folder", metavar="RUN_DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Profile to write [RUN_DIR/profile.yaml].")
@click.option("--name", help="The profile's name [the file's].")
@click.option("--model", type=click.Path(path_type=Path), help="The model's folder: its config.json tells the shape.")
@click.option("--shape", metavar="layers=N,kv_heads=N,head_dim=N", help="The model's shape, where there is no folder.")
@click.option("--max-num-batched-tokens", type=click.IntRange(min=1), help="The engine's [a flag of the arm; vLLM's].")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the simulation that checks the fit.")
def command(
    folder: Path,
    out: Path | None,
    name: str | None,
    model: Path | None,
    shape: str | None,
    max_num_batched_tokens: int | None,
    seed: int,
) -> None:
    """Fit an emulator's profile to the run in RUN_DIR, and say how well it fits.

    The profile serves `loadgen emulate` and `loadgen simulate`. Best taken on a quiet machine, from a run with one
    stream over a wide range of prompts, a saturated stage, and three or more blocks per arm.
    """
    if model is not None and shape is not None:
        raise UserError("--model and --shape: give one of the two")
    run, plan = read_experiment(folder), read_once(folder, Plan)
    if plan is None:
        raise UserError(f"{folder}: no plan.json: the fit cannot be checked against the run's own plan")
    out = _writable(out or folder / "profile.yaml")
    given = fit_shape.from_text(shape) if shape is not None else None
    found = calibrated(
        run,
        Known(
            name=name or out.stem,
            shape=fit_shape.from_model(model) if model is not None else given,
            max_num_batched_tokens=max_num_batched_tokens,
        ),
    )
    console = Page(highlight=False, markup=False, emoji=False)
    for line in lines(found):
        console.print(line, soft_wrap=True)
    console.print(_table(agreement(run, resimulated(found.profile, run, plan, seed=seed))))
    write_file(out, as_yaml(found.profile).encode())
    console.print(f"wrote {out}", soft_wrap=True)


def _writable(out: Path) -> Path:
    """`out`. Raises UserError if something else than a profile is there: a run's own file must not be lost."""
    if out.exists() and (not out.is_file() or not set(out.read_bytes().splitlines()) >= PROFILE_KEYS):
        raise UserError(f"--out {out}: exists and is no profile; should be another file")
    return out


def _table(rows: Iterator[Row]) -> Table:
    table = Table(title="The run's own plan on the fitted profile, means over blocks", title_justify="left", box=None)
    for heading in ("stage", "arm", "quantity"):
        table.add_column(heading)
    for heading in ("measured", "simulated", "error"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.stage, row.arm, QUANTITIES[row.quantity].label, *row.texts)
    return table
