"""An estimate as tables and sentences, or as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import click
import msgspec
from rich.measure import Measurement
from rich.table import Table

from loadgen.cli.estimate_subject import Subject
from loadgen.cli.show import Page
from loadgen.engines import kv_held
from loadgen.engines.kv_held import Held
from loadgen.engines.model_shape import Layer, ModelShape
from loadgen.quantities import text
from loadgen.workload.conclusions import Conclusions
from loadgen.workload.demand import Speeds
from loadgen.workload.estimate import StageEstimate, Step, at_context

USUAL_CONTEXTS = (1_024, 8_192, 32_768)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All that is shown. `told` is None without a scenario."""

    about: Subject
    stages: tuple[StageEstimate, ...]
    contexts: tuple[int, ...]
    told: Conclusions | None
    speeds: Speeds
    notes: tuple[str, ...]


def usual_contexts(stages: Sequence[StageEstimate], max_tokens: int | None) -> tuple[int, ...]:
    """The stages' mean requests; without stages some that the model can hold."""
    if stages:
        return tuple(sorted({stage.request_tokens for stage in stages}))
    fitting = tuple(context for context in USUAL_CONTEXTS if max_tokens is None or context <= max_tokens)
    return fitting or (max_tokens or USUAL_CONTEXTS[0],)


def as_text(shown: Shown) -> None:
    """Prints it for a person."""
    console = Page(highlight=False, markup=False, emoji=False)
    for line in _head(shown.about):
        console.print(line, soft_wrap=True)
    console.print("\nTimes smaller than 16 bits: in name; really, metadata counted, at so many tokens")
    _print(console, _formats(shown))
    for name, why in shown.about.left_out.items():
        console.print(f"left out: {name}: {why}", soft_wrap=True)
    if not shown.stages and shown.about.weights is not None:
        console.print("\nBytes that a decode step of one stream moves, at the least, in 16 bits")
        _print(console, _one_stream(shown))
    for stage in shown.stages:
        console.print("", *_stage_head(stage), sep="\n", soft_wrap=True)
        _print(console, _stage(stage))
    for line in _tail(shown):
        console.print(line, soft_wrap=True)


def _print(console: Page, table: Table) -> None:
    """As wide as it needs to be: figures that are cut short are worse than a long line."""
    width = Measurement.get(console, console.options.update(max_width=1_000), table).maximum
    console.print(table, width=width, crop=False, soft_wrap=False)


def _tail(shown: Shown) -> list[str]:
    lines = [""]
    if shown.stages:
        lines.append(
            "memory: the peak's share of what is there for the cache; holds: of the requests in flight at the peak; "
            "step xN: the cache's share of the bytes that a decode step of N streams moves"
        )
        lines.append(
            f"assumed: {shown.speeds.prefill_tokens_per_s:,.0f} prefill tokens/s, "
            f"{text(shown.speeds.decode_gap_s, 's')} per output token, no queueing; at the peak each request has its "
            f"full length"
        )
    if shown.about.weights is not None:
        lines.append(
            "bound: at most so many times as fast as in 16 bits, for a step that only reads weights and cache, at one "
            "speed; not a forecast"
        )
    lines += [f"note: {note}" for note in shown.notes]
    return [*lines, *(shown.told.sentences if shown.told is not None else ())]


def _head(about: Subject) -> list[str]:
    each = f" on each of {about.gpus} GPUs" if about.gpus > 1 else ""
    lines = [f"{about.shape.name}: {_layers(about.shape)}{each}"]
    if about.weights is None:
        lines.append("weights: not known: give --weights to learn what they are of a step")
    else:
        lines.append(
            f"weights{each}: {text(about.weights.total_bytes, 'bytes')} ({about.weights.source}), of which a decode "
            f"step of one stream reads {text(about.weights.step_bytes(1), 'bytes')}"
        )
    budget = about.budget
    if budget is not None and budget.utilization == 1 and not budget.weights_bytes:
        lines.append(f"for the cache{each}: {text(budget.cache_bytes, 'bytes')}; blocks of {about.block_tokens} tokens")
    elif budget is not None:
        lines.append(
            f"for the cache{each}: {text(budget.cache_bytes, 'bytes')} = {text(budget.memory_bytes, 'bytes')} x "
            f"{budget.utilization:g} - {text(budget.weights_bytes, 'bytes')} of weights - "
            f"{text(budget.reserved_bytes, 'bytes')} reserved; blocks of {about.block_tokens} tokens"
        )
    return lines


def _layers(shape: ModelShape) -> str:
    """ "32 layers of 8 KV heads x 128"."""

    def kind(layer: Layer) -> str:
        if layer.latent is not None:
            return f"one latent of {layer.latent[0]} + {layer.latent[1]} values"
        size = f"{layer.head_dim}" if layer.value_dim == layer.head_dim else f"({layer.head_dim} + {layer.value_dim})"
        window = f", window {layer.window:,}" if layer.window is not None else ""
        return f"{layer.kv_heads} KV heads x {size}{window}"

    kinds = [(name, len(list(group))) for name, group in groupby(sorted(kind(layer) for layer in shape.layers))]
    return "; ".join(f"{count} layers of {name}" for name, count in kinds)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _formats(shown: Shown) -> Table:
    """Bytes per token, what the name promises, what comes out at each context, and what fits."""
    budget, base = shown.about.budget, shown.about.formats[0]
    real = [f"at {context:,}" for context in shown.contexts]
    table = _table("format", "B/token", "nominal", *real, *(["tokens fit"] if budget is not None else []))
    for one in shown.about.formats:
        cells = [f"{one.bytes_per_token:,.0f}", f"{one.nominal_ratio:.2f}x"]
        cells += [f"{ratio:.2f}x" for ratio in _ratios(base, one, shown.contexts)]
        if budget is not None:
            cells.append(f"{budget.tokens(one, shown.contexts[-1]):,}")
        table.add_row(one.name, *cells)
    return table


def _ratios(base: Held, one: Held, contexts: Sequence[int]) -> list[float]:
    return [float(base.sequence_bytes(context) / one.sequence_bytes(context)) for context in contexts]


def _one_stream(shown: Shown) -> Table:
    table = _table("context", "weights", "cache", "of a step", "half of it, bound")
    for context in shown.contexts:
        step = at_context(shown.about.formats, context, shown.about.weights)[0]
        moved = (text(step.weights_bytes, "bytes"), text(step.cache_bytes, "bytes"), text(step.cache_ratio, "ratio"))
        table.add_row(f"{context:,}", *moved, f"{step.halved_speedup:.2f}x")
    return table


def _stage_head(stage: StageEstimate) -> list[str]:
    return [
        f"{stage.stage}: {stage.in_flight:,} in flight at the peak hold {stage.peak_tokens:,} tokens (on average "
        f"{stage.mean_tokens:,.0f} are held); a decode step reads {stage.context_tokens:,.0f} tokens of a stream"
    ]


def _stage(stage: StageEstimate) -> Table:
    known = stage.base.held is not None
    steps = [column for step in stage.base.steps for column in (f"step x{step.streams:,}", "bound")]
    table = _table("format", "peak", *(["memory", "holds"] if known else []), *steps)
    for row in stage.formats:
        cells = [text(row.peak_bytes, "bytes")]
        if row.held is not None:
            cells += [text(row.of_cache_ratio, "ratio"), f"{row.held:,}"]
        for step in row.steps:
            cells += [text(step.cache_ratio, "ratio"), f"{step.most_speedup:.2f}x"]
        table.add_row(row.format, *cells)
    return table


def as_json(shown: Shown) -> None:
    """Prints it for a program; a memory, weights or conclusions that are not known are null."""
    about, told = shown.about, shown.told
    budget = about.budget
    summary = {
        "model": about.shape,
        "gpus": about.gpus,
        "weights": about.weights,
        "memory": budget and {**_fields(budget), "cache_bytes": budget.cache_bytes},
        "assumed": shown.speeds,
        "formats": [_format(shown, one) for one in about.formats],
        "left_out": about.left_out,
        "contexts": [{"tokens": context, "one_stream": _named_steps(about, context)} for context in shown.contexts],
        "stages": shown.stages,
        "memory_binds": told and told.memory_binds,
        "steps_gain": told and told.steps_gain,
        "nothing_to_free": told and told.nothing_to_free,
        "sentences": told.sentences if told is not None else (),
        "notes": shown.notes,
    }
    click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())


def _fields(record: object) -> dict[str, object]:
    return dict(msgspec.to_builtins(record))


def _format(shown: Shown, one: Held) -> dict[str, object]:
    base, budget = shown.about.formats[0], shown.about.budget
    ratios = _ratios(base, one, shown.contexts)
    return {
        **kv_held.as_json(one),
        "at": [
            {"tokens": context, "bytes": float(one.sequence_bytes(context)), "real_ratio": ratio,
             "capacity_tokens": budget.tokens(one, context) if budget is not None else None}
            for context, ratio in zip(shown.contexts, ratios, strict=True)
        ],
    }  # fmt: skip


def _named_steps(about: Subject, context: int) -> dict[str, Step]:
    names = [one.name for one in about.formats]
    return dict(zip(names, at_context(about.formats, context, about.weights), strict=False))
