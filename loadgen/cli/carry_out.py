"""What `compare` and `run` share: scenario to plan, plan to run directory, run directory to report."""

import asyncio
from pathlib import Path
from typing import Any

import click

from loadgen.cli.options import bearer, command_line, run_folder
from loadgen.cli.plan import planned
from loadgen.cli.show import show
from loadgen.errors import ExperimentError
from loadgen.experiment.conduct import conduct
from loadgen.experiment.setup import Reach, Setup, create, restart_for, resume
from loadgen.live.dashboard import Dashboard
from loadgen.records import ArmSpec, Report
from loadgen.store import read_experiment


def carry_out(scenario: str | None, arms: tuple[ArmSpec, ...], **options: Any) -> int:
    """Conducts the experiment and shows its report.

    Exit code 0, or 3 if it was stopped, broke off, or had an arm on which every measured request failed. Raises
    UserError for what the user can mend, ServerError/ExperimentError where nothing was measured.
    """
    reach = _reach(options)
    setup = resume(options["resume"], reach) if scenario is None else _new(scenario, arms, reach, options)
    dashboard = Dashboard()
    for note in setup.plan.notes:
        dashboard.say(f"note: {note}")
    dashboard.say(f"run directory: {setup.root}")
    try:
        whole = asyncio.run(conduct(setup, dashboard))
    except ExperimentError as error:
        if not _anything(setup.root):
            raise
        show(setup.root)
        click.echo(f"loadgen: {error}\nloadgen: the report shows what was measured before", err=True)
        return error.exit_code
    barren = _barren(show(setup.root)) if _anything(setup.root) else ()
    if not whole:
        click.echo(f"stopped; `loadgen compare --resume {setup.root}` goes on with it", err=True)
    elif barren:
        click.echo(f"loadgen: {', '.join(barren)}: not one measured request ended well; the report says why", err=True)
    return 0 if whole and not barren else 3


def _new(name: str, arms: tuple[ArmSpec, ...], reach: Reach, options: dict[str, Any]) -> Setup:
    path, scenario, plan = planned(name)
    return create(
        root=run_folder(options["out"], scenario.name),
        command=command_line(),
        scenario=(scenario.name, path.read_text(encoding="utf-8")),
        plan=plan,
        arms=arms,
        repeats=options["repeats"] or scenario.repeats,
        restart=restart_for(arms, options["restart"]),
        slo=scenario.slo.record(),
        reach=reach,
    )


def _reach(options: dict[str, Any]) -> Reach:
    return Reach(
        headers=bearer(options["api_key_env"]),
        connect_timeout_s=options["connect_timeout"],
        read_timeout_s=options["read_timeout"],
        start_timeout_s=options["start_timeout"],
        scrape_interval_s=options["scrape_interval"],
        transport=options["transport"],
        ca_file=options["ca_file"],
        insecure=options["insecure"],
    )


def _barren(report: Report) -> tuple[str, ...]:
    """The arms that measured nothing: every request failed."""
    return tuple(arm.name for arm in report.arms if not any(ok for _, _, ok, _ in arm.requests.values()))


def _anything(root: Path) -> bool:
    return any(block.samples for block in read_experiment(root).blocks)
