"""`loadgen plan`: what a scenario will send, and how much KV cache it will want, before anything is sent."""

from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from rich.table import Table

from loadgen.cli.options import Finite
from loadgen.cli.show import Page
from loadgen.quantities import text
from loadgen.records import Plan, Request, StagePlan
from loadgen.traces.read import read_trace
from loadgen.workload.demand import Demand, Speeds, demand, met
from loadgen.workload.plan import build
from loadgen.workload.reuse import lru_ratio
from loadgen.workload.scenario import Scenario, find, load

RUNS = "runs: u: nobody else has them; p: a shared prefix; s: a session's; b: a block of the trace"
LEVELS = {"p10": 10, "p50": 50, "p90": 90, "p99": 99, "max": 100}


def planned(name_or_path: str) -> tuple[Path, Scenario, Plan]:
    """The scenario's file, the scenario and its plan, its trace read where it names one. Raises UserError."""
    path = find(name_or_path)
    scenario = load(path)
    source = scenario.workload.trace
    trace = read_trace(source.path, source.format) if source is not None else None
    return path, scenario, build(scenario, trace)


@click.command("plan")
@click.argument("scenario")
@click.option("--capacity", "capacities", type=click.IntRange(min=1), metavar="TOKENS", multiple=True,
              help="KV-cache capacity to compare with; may be given several times.")  # fmt: skip
@click.option("--block", type=click.IntRange(min=1), default=1, show_default=True, help="Tokens of one KV block.")
@click.option("--rows", type=click.IntRange(min=0), default=5, show_default=True, help="First requests to show.")
@click.option("--prefill-speed", type=Finite(min=0, min_open=True), default=10_000.0, show_default=True,
              help="Prefill tokens per second to assume.")  # fmt: skip
@click.option("--decode-gap", type=Finite(min=0, min_open=True), default=0.020, show_default=True,
              help="Seconds per output token to assume.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    scenario: str,
    capacities: tuple[int, ...],
    block: int,
    rows: int,
    prefill_speed: float,
    decode_gap: float,
    as_json: bool,
) -> None:
    """Show what SCENARIO (a name or a YAML file) will send, without sending it."""
    path, loaded, plan = planned(scenario)
    speeds = Speeds(prefill_tokens_per_s=prefill_speed, decode_gap_s=decode_gap)
    demands = [demand(stage, speeds, block) for stage in plan.stages]
    if as_json:
        summary = _summary(plan, demands, {size: _reused(plan, size, block) for size in capacities}, rows)
        click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
        return
    console = Page(highlight=False, markup=False, emoji=False)
    for line in _head(path, loaded, plan):
        console.print(line, soft_wrap=True)
    console.print(_stages(plan), _lengths(plan), _demands(demands), sep="\n")
    for line in _capacity_lines(plan, demands, capacities, speeds, block):
        console.print(line, soft_wrap=True)
    if rows:
        console.print(_first_rows(plan, rows))
        console.print(RUNS, soft_wrap=True)
    for note in plan.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _head(path: Path, scenario: Scenario, plan: Plan) -> list[str]:
    limit = f", at most {scenario.limit.requests_per_second:g} requests/s" if scenario.limit else ""
    return [
        f"{scenario.name}: {scenario.description}" if scenario.description else scenario.name,
        f"{path}, plan {plan.digest}",
        f"endpoint {scenario.workload.endpoint}, seed {scenario.seed}, {scenario.repeats} blocks per arm{limit}",
    ]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _stages(plan: Plan) -> Table:
    with_sessions = any(stage.spec.sessions is not None for stage in plan.stages)
    more = ("sessions", "later turns") if with_sessions else ()
    table = _table("\nStages", "stage", "sends", "requests", "warm-up", *more)
    table.columns[1].justify = "left"
    for stage in plan.stages:
        spec, turns = stage.spec, sum(bool(request.after) for request in stage.requests)
        figures = (spec.planned, spec.warmup, *((spec.sessions or spec.planned, turns) if with_sessions else ()))
        table.add_row(spec.name, _sends(stage), *(f"{figure:,}" for figure in figures))
    return table


def _lengths(plan: Plan) -> Table:
    table = _table("\nTokens per request, without the warm-up", "stage", "of", *LEVELS, "mean", "total")
    for stage in plan.stages:
        for kind in ("prompt", "output"):
            tokens = _tokens(stage, kind)
            levels = [f"{value:,}" for value in _levels(tokens).values()]
            table.add_row(stage.spec.name, kind, *levels, f"{tokens.mean():,.0f}", f"{int(tokens.sum()):,}")
    return table


def _sends(stage: StagePlan) -> str:
    spec = stage.spec
    if spec.concurrency is not None:
        until = f", until {spec.duration_s:g} s" if spec.duration_s is not None else ""
        what = "in flight" if spec.sessions is None else f"session{'s' if spec.concurrency > 1 else ''} at a time"
        return f"{spec.concurrency} {what}{until}"
    last_s = max(request.due_s or 0.0 for request in stage.requests)
    if spec.speed is not None:
        begun = "starts in " if spec.sessions is not None else ""
        return f"trace x {spec.speed:g}, {begun}{last_s:,.0f} s"
    return f"{spec.rate_per_s:g}/s, CV {spec.burstiness_cv:g}, {last_s:,.0f} s"


def _tokens(stage: StagePlan, kind: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    values = [request.prompt_tokens if kind == "prompt" else request.output_tokens for request in stage.requests]
    return np.array(values, dtype=np.int64)


def _levels(tokens: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int]:
    values = np.percentile(tokens, list(LEVELS.values()), method="inverted_cdf")
    return dict(zip(LEVELS, map(int, values), strict=True))


def _demands(demands: list[Demand]) -> Table:
    table = _table("\nKV cache wanted", "stage", "in flight", "peak tokens", "mean tokens", "prompt reused")
    for one in demands:
        figures = (one.in_flight, one.peak_tokens, one.mean_tokens)
        table.add_row(one.stage, *(f"{figure:,.0f}" for figure in figures), text(one.reused_ratio, "ratio"))
    return table


def _reused(plan: Plan, capacity: int, block: int) -> list[float]:
    """By stage: the share of prompt tokens that a prefix cache of this capacity holds when their requests come."""
    asked = ((stage.spec, stage.requests) for stage in plan.stages)
    return [
        lru_ratio(met(requests, spec.concurrency, spec.duration_s), capacity, block) if spec.reuse else 0.0
        for spec, requests in asked
    ]


def _capacity_lines(
    plan: Plan, demands: list[Demand], capacities: tuple[int, ...], speeds: Speeds, block: int
) -> list[str]:
    lines = [
        f"assumed: {speeds.prefill_tokens_per_s:,.0f} prefill tokens/s, {text(speeds.decode_gap_s, 's')} per output "
        f"token, no queueing, blocks of {text(block, 'tokens')}; at the peak each request has its full length"
    ]
    for capacity in capacities:
        for one, reused in zip(demands, _reused(plan, capacity, block), strict=True):
            share = f"{one.held(capacity):,} of {one.in_flight:,}"
            hits = f"; its prefix cache finds {text(reused, 'ratio')} of the prompt tokens" if reused else ""
            lines.append(f"{one.stage}: a capacity of {capacity:,} tokens holds {share} requests of the peak{hits}")
    return lines


def _first_rows(plan: Plan, rows: int) -> Table:
    table = _table("\nFirst requests", "stage", "#", "due s", "prompt", "output", "runs of prompt tokens")
    table.columns[-1].justify, table.columns[-1].no_wrap, table.columns[-1].overflow = "left", False, "fold"
    for stage in plan.stages:
        for request in stage.requests[:rows]:
            due = _due(request)
            runs = " + ".join(f"{run.key} x {run.tokens}" for run in request.runs[:3])
            more = f" + {len(request.runs) - 3} more" if len(request.runs) > 3 else ""
            lengths = (f"{request.prompt_tokens:,}", f"{request.output_tokens:,}")
            table.add_row(stage.spec.name, str(request.index), due, *lengths, runs + more)
    return table


def _due(request: Request) -> str:
    """ "1.500", "after 3, 4 + 2.5"; "-" where a free stream takes it."""
    due = [] if request.due_s is None else [f"{request.due_s:.3f}"]
    if request.after:
        think = f" + {request.think_s:.3f}" if request.think_s else ""
        due.append(f"after {', '.join(map(str, request.after))}{think}")
    return ", ".join(due) or "-"


def _summary(plan: Plan, demands: list[Demand], reused: dict[int, list[float]], rows: int) -> dict[str, Any]:
    stages = [
        {
            "spec": stage.spec,
            "prompt_tokens": {"total": int(_tokens(stage, "prompt").sum()), **_levels(_tokens(stage, "prompt"))},
            "output_tokens": {"total": int(_tokens(stage, "output").sum()), **_levels(_tokens(stage, "output"))},
            "kv": {
                "in_flight": one.in_flight,
                "peak_tokens": one.peak_tokens,
                "mean_tokens": round(one.mean_tokens, 1),
                "reused_ratio": round(one.reused_ratio, 4),
                "capacities": [
                    {"tokens": size, "held": one.held(size), "reused_ratio": round(shares[number], 4)}
                    for size, shares in reused.items()
                ],
            },
            "first": stage.requests[:rows],
        }
        for number, (stage, one) in enumerate(zip(plan.stages, demands, strict=True))
    ]
    return {
        "scenario": plan.scenario,
        "seed": plan.seed,
        "digest": plan.digest,
        "assumed": demands[0].assumed,
        "stages": stages,
        "notes": plan.notes,
    }
