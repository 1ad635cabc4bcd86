"""`loadgen compare SCENARIO --arm bf16 --arm fp8`: the main job."""

from pathlib import Path
from typing import Any

import click

from loadgen.cli.carry_out import carry_out
from loadgen.cli.options import pairs, with_reach
from loadgen.engines.table import ENGINES
from loadgen.errors import UserError
from loadgen.server.arms import resolve


@click.command(name="compare")
@click.argument("scenario", required=False)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    help="NAME of a file in deploy/ENGINE/arms, a file, or NAME=URL of a server that runs; the first is the base.",
)
@click.option("--engine", type=click.Choice(sorted(ENGINES)), default="vllm", show_default=True)
@click.option("--shared", type=click.Path(path_type=Path), help="Flags for every arm [deploy/ENGINE/common.yaml].")
@click.option("--model", help="Model name or folder for arms that loadgen starts; of running servers: which one.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A further engine flag for every arm.")
@click.option("--log", "logs", multiple=True, metavar="ARM=FILE", help="Log of a running server: tells its backend.")
@click.option("--repeats", type=click.IntRange(min=1), help="Blocks per arm [the scenario's].")
@click.option("--restart", type=click.Choice(["each-block", "never"]), help="[each-block; never for NAME=URL arms]")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with an interrupted run directory.")
@with_reach
def command(scenario: str | None, arms: tuple[str, ...], **options: Any) -> int:
    """Drives every arm with byte-identical traffic, in blocks A B B A, and prints the verdict.

    One stream and saturation are judged apart, each with its interval, and the four causes with their evidence.
    """
    if options["resume"] is not None:
        if scenario or arms:
            raise UserError("--resume: takes scenario and arms from the run directory; leave them out")
        return carry_out(None, (), **options)
    if scenario is None or len(arms) < 2:
        raise UserError("compare needs a SCENARIO and two --arm options, such as: demo --arm bf16 --arm fp8")
    engine = ENGINES[options["engine"]]
    resolved = resolve(
        arms,
        engine=engine,
        shared=options["shared"],
        overrides=pairs(options["overrides"], "--set"),
        model=options["model"],
        logs=pairs(options["logs"], "--log", "fp8=server.log"),
    )
    return carry_out(scenario, tuple(resolved), **options)
