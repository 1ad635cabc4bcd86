"""`loadgen simulate SCENARIO --arm bf16 --arm fp8`: the main job in virtual time, on a machine of a profile."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadgen.cli.options import Finite, command_line, pairs, run_folder
from loadgen.errors import ExperimentError, UserError

if TYPE_CHECKING:
    from loadgen.experiment.setup import Reach, Setup


@click.command(name="simulate")
@click.argument("scenario", required=False)
@click.option(
    "--arm", "arms", multiple=True, help="NAME of a file in deploy/emulator/arms, or a file; the first is the base."
)
@click.option("--profile", help="Machine and model: NAME in deploy/emulator/profiles, or a file [the shared flags'].")
@click.option("--shared", type=click.Path(path_type=Path), help="Flags for every arm [deploy/emulator/common.yaml].")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A further engine flag for every arm.")
@click.option("--repeats", type=click.IntRange(min=1), help="Blocks per arm [the scenario's].")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the machine's noise.")
@click.option("--restart", type=click.Choice(["each-block", "never"]), default="each-block", show_default=True)
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with an interrupted run directory.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Run directory [runs/SCENARIO-TIME].")
@click.option(
    "--scrape-interval",
    type=Finite(min=0.05, max=3_600),
    default=0.25,
    show_default=True,
    help="Seconds of virtual time.",
)
def command(scenario: str | None, arms: tuple[str, ...], **options: Any) -> int:
    """Computes what `compare` would measure, on a machine that a profile describes. No server runs.

    One arm gives figures, two or more a comparison. Files and reports are those of `compare`, marked SIMULATED. All of
    it is as good as the profile: see docs/simulate.md.
    """
    if options["resume"] is not None:
        if scenario or arms:
            raise UserError("--resume: takes scenario and arms from the run directory; leave them out")
    elif scenario is None or not arms:
        raise UserError("simulate needs a SCENARIO and at least one --arm, such as: demo --arm bf16 --arm fp8")
    return _carried_out(scenario, arms, options)


def _new(scenario: str, names: tuple[str, ...], options: dict[str, Any], reach: "Reach") -> "Setup":
    from loadgen.cli.plan import planned
    from loadgen.document import text_of
    from loadgen.emulator.profile import find
    from loadgen.engines.table import ENGINES
    from loadgen.experiment.setup import Emulation, create
    from loadgen.experiment.simulate import engines_of, profile_of
    from loadgen.server.arms import resolve

    asked = [name for name in names if "://" in name]
    if asked:
        raise UserError(*(f"--arm {name}: no server is asked; give a name or a file of flags" for name in asked))
    profile = {"profile": options["profile"]} if options["profile"] else {}
    arms = resolve(
        names,
        engine=ENGINES["emulator"],
        shared=options["shared"],
        overrides=pairs(options["overrides"], "--set") | profile,
        model=None,
    )
    path, loaded, plan = planned(scenario)
    profiles = {name: text_of(find(name)) for name in dict.fromkeys(map(profile_of, arms))}
    engines_of(arms, profiles, plan)
    return create(
        root=run_folder(options["out"], loaded.name),
        command=command_line(),
        scenario=(loaded.name, path.read_text(encoding="utf-8")),
        plan=plan,
        arms=tuple(arms),
        repeats=options["repeats"] or loaded.repeats,
        restart=options["restart"],
        slo=loaded.slo.record(),
        reach=reach,
        emulation=Emulation(profiles=profiles, noise_seed=options["seed"]),
    )


def _carried_out(scenario: str | None, arms: tuple[str, ...], options: dict[str, Any]) -> int:
    from loadgen.cli.show import show
    from loadgen.experiment.setup import Reach, resume
    from loadgen.experiment.simulate import simulate
    from loadgen.live.dashboard import Dashboard
    from loadgen.store import read_experiment

    reach = Reach(scrape_interval_s=options["scrape_interval"])
    if scenario is None:
        setup = resume(options["resume"], reach, virtual_time=True)
    else:
        setup = _new(scenario, arms, options, reach)
    dashboard = Dashboard()
    for note in setup.plan.notes:
        dashboard.say(f"note: {note}")
    dashboard.say(f"run directory: {setup.root}")
    try:
        whole = simulate(setup, dashboard)
    except ExperimentError as error:
        click.echo(f"loadgen: {error}", err=True)
        whole = False
    if any(block.samples for block in read_experiment(setup.root).blocks):
        show(setup.root)
    if not whole:
        click.echo(f"stopped; `loadgen simulate --resume {setup.root}` goes on with it", err=True)
    return 0 if whole else 3
