"""`loadgen run SCENARIO --url URL`: one server that already runs."""

from typing import Any

import click

from loadgen.cli.carry_out import carry_out
from loadgen.cli.options import with_reach
from loadgen.engines.table import ENGINES
from loadgen.errors import UserError
from loadgen.records import ArmSpec
from loadgen.server.address import server_root
from loadgen.server.arms import NAME


@click.command(name="run")
@click.argument("scenario")
@click.option("--url", required=True, help="The server's root, such as http://127.0.0.1:8000.")
@click.option("--name", default="server", show_default=True, help="What to call it in the report.")
@click.option("--engine", type=click.Choice(sorted(ENGINES)), default="vllm", show_default=True)
@click.option("--model", help="Which of the server's models [its only one].")
@click.option("--log", type=click.Path(exists=True, dir_okay=False), help="Its log file: tells its attention backend.")
@click.option("--repeats", type=click.IntRange(min=1), help="Blocks [the scenario's].")
@with_reach
def command(scenario: str, url: str, name: str, log: str | None, **options: Any) -> int:
    """Drives the server at URL with SCENARIO and reports: no comparison, every figure with its interval."""
    if not NAME.fullmatch(name):
        raise UserError(f"--name {name}: should be of letters, digits, dot, dash, underscore")
    shared = {"model": options["model"]} if options["model"] else {}
    arm = ArmSpec(name=name, engine=options["engine"], shared_flags=shared, url=server_root(url), log=log)
    return carry_out(scenario, (arm,), restart=None, resume=None, **options)
