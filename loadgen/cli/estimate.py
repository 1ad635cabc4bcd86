"""`loadgen estimate`: what a smaller KV cache could bring to a model and its traffic, before any server runs."""

import re
from typing import TYPE_CHECKING, Any

import click

from loadgen.cli.options import Finite

if TYPE_CHECKING:  # numbers' and records' libraries are loaded when there is something to estimate, not for --help
    from loadgen.cli.estimate_subject import Subject
    from loadgen.workload.demand import Speeds
    from loadgen.workload.estimate import StageEstimate

UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


class Size(click.ParamType[float]):
    """Bytes: 85.5e9, 80GB (10^9), 79.65GiB (2^30), 81559MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The bytes. Raises click.BadParameter."""
        found = re.fullmatch(r"\s*(\d+\.?\d*(?:e\d+)?)\s*([a-z]*)\s*", str(value).lower())
        if found is None or found[2] not in UNITS or not 0 < float(found[1]) * UNITS[found[2]] < 1e18:
            self.fail(f"{value}: should be a size such as 80GB (10^9 bytes) or 79.65GiB (2^30).", param, ctx)
        return float(found[1]) * UNITS[found[2]]


class Weight(Size):
    """A size, or `auto`, which becomes None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The bytes or None. Raises click.BadParameter."""
        return None if value == "auto" else super().convert(value, param, ctx)


COUNT = click.IntRange(1, 1_000_000_000)


@click.command("estimate")
@click.argument("scenario", required=False)
@click.option("--model", metavar="FOLDER|FILE", help="Folder with a config.json, or the file. Nothing is downloaded.")
@click.option("--profile", metavar="NAME", help="Model and memory of an emulator profile, in place of --model.")
@click.option("--layers", type=COUNT, help="In place of the config's, or without --model.")
@click.option("--kv-heads", type=COUNT, help="Likewise.")
@click.option("--head-dim", type=COUNT, help="Likewise: values of one head's K.")
@click.option("--window", type=COUNT, metavar="TOKENS",
              help="Likewise: of layers that keep the newest TOKENS alone; without --model all do.")  # fmt: skip
@click.option("--format", "formats", multiple=True, metavar="NAME",
              help="bf16, fp8, nvfp4, llama.cpp:q8_0 ..., or all; repeatable.  [vLLM's common ones]")  # fmt: skip
@click.option("--memory", type=Size(), help="Of one GPU: 80GB, 79.65GiB, 81559MiB (as nvidia-smi tells it).")
@click.option("--utilization", type=Finite(min=0, max=1, min_open=True), help="Share that the engine may use.  [0.92]")
@click.option("--weights", type=Weight(), default="auto", show_default=True,
              help="Bytes of weights; auto: the size of the model's files, else counted from the config.")  # fmt: skip
@click.option("--reserved", type=Size(), help="Activations, graphs, other processes.  [0]")
@click.option("--tensor-parallel", type=COUNT, default=1, show_default=True, help="GPUs; figures are of one of them.")
@click.option("--block", type=COUNT, help="Tokens of one KV block.  [16]")
@click.option("--context", "contexts", type=COUNT, multiple=True, metavar="TOKENS",
              help="Show ratios at so many tokens; repeatable.  [the stages' mean requests]")  # fmt: skip
@click.option("--prefill-speed", type=Finite(min=1e-3), default=10_000.0, show_default=True,
              help="Prefill tokens per second to assume: says who is in flight together.")  # fmt: skip
@click.option("--decode-gap", type=Finite(min=0, min_open=True, max=86_400), default=0.020, show_default=True,
              help="Seconds per output token to assume, likewise.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(scenario: str | None, *, prefill_speed: float, decode_gap: float, as_json: bool, **given: Any) -> None:
    """Say what a smaller KV cache could bring, before any server runs.

    Bytes per token in every format, tokens that fit, and, with SCENARIO (a name or a YAML file), how much of its demand
    each format holds and how much of a decode step's bytes the cache is. What it gives of speed are bounds, not
    forecasts: docs/estimate.md.
    """
    from loadgen.cli import estimate_show
    from loadgen.cli.estimate_subject import subject
    from loadgen.workload.conclusions import conclusions
    from loadgen.workload.demand import Speeds

    about = subject(**given)
    speeds = Speeds(prefill_tokens_per_s=prefill_speed, decode_gap_s=decode_gap)
    stages, notes = _stages(scenario, about, speeds) if scenario is not None else ([], ())
    told = conclusions(stages, about.formats) if stages else None
    shown = estimate_show.Shown(
        about=about,
        stages=tuple(stages),
        contexts=given["contexts"] or estimate_show.usual_contexts(stages, about.shape.max_tokens),
        told=told,
        speeds=speeds,
        notes=(*about.notes, *notes),
    )
    (estimate_show.as_json if as_json else estimate_show.as_text)(shown)


def _stages(scenario: str, about: "Subject", speeds: "Speeds") -> "tuple[list[StageEstimate], tuple[str, ...]]":
    from loadgen.cli.plan import planned
    from loadgen.workload.demand import demand
    from loadgen.workload.estimate import stage_estimate

    _, _, plan = planned(scenario)
    wanted = [(stage, demand(stage, speeds, about.block_tokens)) for stage in plan.stages]
    return [stage_estimate(*one, about.formats, about.budget, about.weights) for one in wanted], plan.notes
