"""A measured run -> a profile: what each step cost, what the engine had, and what cannot be known from outside."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadgen.emulator import fit_shape
from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.fit_noise import noise_of
from loadgen.emulator.fit_run import (
    FULL,
    Known,
    budget_tokens,
    complete_blocks,
    server_facts,
    step_groups,
    token_size_bytes,
)
from loadgen.emulator.fit_shape import Shape
from loadgen.emulator.fit_terms import Fitted, Group, Term, fit
from loadgen.emulator.profile import (
    FormatKeys,
    MemoryKeys,
    ModelKeys,
    Profile,
    SchedulerKeys,
    StepKeys,
    token_bytes,
)
from loadgen.errors import UserError
from loadgen.records import Experiment, Role, ServerFacts

NO_READ_BYTES_PER_S = 1e18  # stands for "reading the cache costs nothing that was seen"
SIZE_TOLERANCE = 0.02
DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a run tells. `terms` and the rest of the fit are in `fitted`; `notes`: what to know before using it."""

    profile: Profile
    fitted: Fitted
    base_format: str
    groups: tuple[Group, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    facts: Mapping[str, ServerFacts]  # by arm
    base: str  # arm
    groups: tuple[Group, ...]
    budget_tokens: int
    blocks: int

    @property
    def base_format(self) -> str:
        return str(self.facts[self.base].kv_dtype)


def calibrated(experiment: Experiment, known: Known) -> Calibration:
    """Fits a profile to all complete blocks. Raises UserError, one line per complaint, where a run cannot carry one."""
    notes: list[str] = []
    run = _read(experiment, known, notes)
    shape = _shape(run.facts[run.base], known, notes)
    fitted = fit(run.groups, base=run.base_format)
    noise = noise_of(run.groups, fitted, restarts=experiment.manifest.restart == "each-block")
    if len({one.kv_dtype for one in run.facts.values()}) == 1:
        notes.append(f"one KV format ({run.base_format}): nothing is known of what another would cost")
    notes += [f"{term.label}: {term.kept}" for term in fitted.terms if term.kept]
    notes += [f"{term.label}: 0: the data ask for none, or for less" for term in _at_zero(fitted)]
    notes += noise.notes
    base = run.facts[run.base]
    profile = Profile(
        name=known.name,
        description=f"fitted to {run.blocks} blocks of {experiment.manifest.scenario}; seen: {_range(run.groups)}",
        source=_source(experiment, base, fitted),
        device=base.device or "cuda",
        gpu=next(iter(base.host.gpus), None) if base.host else None,
        version=base.version or "0.32.0",
        front_s=_short(fitted.value("front_s")),
        model=_model(shape, base),
        memory=MemoryKeys(kv_cache_bytes=_cache_bytes(shape, base)),
        step=_step(fitted, run.base_format),
        formats={str(one.kv_dtype): _format(fitted, shape, one, run.base_format) for one in run.facts.values()},
        scheduler=_scheduler(base, run.budget_tokens, notes),
        noise=noise.keys,
    )
    return Calibration(
        profile=profile,
        fitted=fitted,
        base_format=run.base_format,
        groups=run.groups,
        notes=tuple(dict.fromkeys(notes)),
    )


def with_format(calibration: Calibration, experiment: Experiment, known: Known, *, role: Role | None) -> Profile:
    """The profile with the formats of another run: their own terms fitted to its stages of `role` (None: nothing
    fitted, the format differs in bytes alone), all that formats share held as it is.

    Raises UserError as `calibrated` does.
    """
    profile, base = calibration.profile, calibration.base_format
    run = _read(experiment, known, [], role=role or "one_stream")
    held = {
        (term.name, term.kv_dtype): term.value for term in calibration.fitted.terms if term.kv_dtype in (None, base)
    }
    model = profile.model
    shape = Shape(layers=model.layers, kv_heads=model.kv_heads, head_dim=model.head_dim)
    fitted = fit(run.groups, base=base, held=held) if role is not None else None
    own = {
        str(facts.kv_dtype): _format(fitted or calibration.fitted, shape, facts, base)
        for facts in run.facts.values()
        if facts.kv_dtype != base
    }
    return profile.model_copy(update={"formats": {**profile.formats, **own}})


def _read(experiment: Experiment, known: Known, notes: list[str], role: Role | None = None) -> _Run:
    blocks = complete_blocks(experiment, notes)
    arms = {spec.name: spec for spec in experiment.manifest.arms}
    facts = {name: server_facts(experiment, name, blocks) for name in arms}
    base = next((name for name, one in facts.items() if one.kv_dtype in FULL), next(iter(facts)))
    budget = budget_tokens(arms[base], facts[base], known, notes)
    groups = step_groups(experiment, blocks, budget, notes, role=role)
    return _Run(facts=facts, base=base, groups=groups, budget_tokens=budget, blocks=len(blocks))


def engines(profile: Profile, experiment: Experiment) -> tuple[Emulated, ...]:
    """The run's arms as `profile` has them, with the capacity, block size and limits that each server had."""
    found = []
    for spec in experiment.manifest.arms:
        facts = next(block.facts for block in experiment.blocks if block.manifest.arm == spec.name)
        dtype = str(facts.kv_dtype)
        flags = {"kv-cache-dtype": dtype, "served-model-name": facts.model or profile.model.name}
        if facts.capacity_tokens is not None and dtype in profile.formats:
            flags["kv-cache-memory-bytes"] = str(math.ceil(facts.capacity_tokens * token_bytes(profile, dtype)))
        for flag, value in (
            ("block-size", facts.block_tokens),
            ("max-num-seqs", facts.max_num_seqs),
            ("max-model-len", facts.max_model_len),
        ):
            if value is not None:
                flags[flag] = str(value)
        found.append(emulated(profile, flags))
    return tuple(found)


def _shape(facts: ServerFacts, known: Known, notes: list[str]) -> Shape:
    size, dtype = token_size_bytes(facts), str(facts.kv_dtype)
    if known.shape is None:
        shape = fit_shape.equivalent(size, dtype)
        notes.append(f"the model's shape is not known: {shape.text} has the same {size:,.0f} bytes per token")
        return shape
    told = fit_shape.size_of(known.shape, dtype)
    if dtype in FULL and abs(told / size - 1) > SIZE_TOLERANCE:
        raise UserError(f"{known.shape.text}: {told:,.0f} bytes per {dtype} token; the server has {size:,.0f}")
    return known.shape


def _model(shape: Shape, facts: ServerFacts) -> ModelKeys:
    more = {} if shape.vocabulary is None else {"vocabulary": shape.vocabulary}
    return ModelKeys(
        name=facts.model or "model",
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        weight_bytes=0,
        max_model_len=facts.max_model_len or int(facts.capacity_tokens or 1),
        **more,
    )


def _cache_bytes(shape: Shape, facts: ServerFacts) -> float:
    return float(math.ceil((facts.capacity_tokens or 0) * fit_shape.size_of(shape, str(facts.kv_dtype))))


def _step(fitted: Fitted, base: str) -> StepKeys:
    return StepKeys(
        fixed_s=_short(fitted.value("fixed_s")),
        weight_bandwidth_bytes_per_s=1.0,
        attention_bandwidth_bytes_per_s=_bandwidth(fitted, base),
        token_s=_short(fitted.value("token_s")),
        sequence_s=_short(fitted.value("sequence_s")),
        prefill_pair_s=_short(fitted.value("prefill_pair_s")),
    )


def _bandwidth(fitted: Fitted, kv_dtype: str) -> float:
    each = fitted.value("read_s_per_byte", kv_dtype)
    return _short(min(NO_READ_BYTES_PER_S, 1 / each)) if each > 0 else NO_READ_BYTES_PER_S


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _format(fitted: Fitted, shape: Shape, facts: ServerFacts, base: str) -> FormatKeys:
    kv_dtype = str(facts.kv_dtype)
    fits = any(term.kv_dtype == kv_dtype for term in fitted.terms)
    bandwidth = _bandwidth(fitted, kv_dtype) if fits and kv_dtype != base else None
    return FormatKeys(
        backend=facts.backends[0].name if facts.backends else "UNKNOWN",
        conversion_step_s=_short(fitted.value("conversion_step_s", kv_dtype)),
        conversion_stored_s=_short(fitted.value("conversion_stored_s", kv_dtype)),
        conversion_prefill_s=_short(fitted.value("conversion_prefill_s", kv_dtype)),
        skip_layers=fit_shape.skipped_layers(shape, kv_dtype, token_size_bytes(facts)),
        attention_bandwidth_bytes_per_s=bandwidth,
    )


def _scheduler(facts: ServerFacts, budget: int, notes: list[str]) -> SchedulerKeys:
    if facts.max_num_seqs is None:
        notes.append("max_num_seqs was not told: 256 assumed")
    if facts.prefix_caching:
        notes.append("prefix caching was on: prompt tokens that a response did not report as cached count as computed")
    return SchedulerKeys(
        max_num_seqs=facts.max_num_seqs or 256,
        max_num_batched_tokens=budget,
        block_tokens=facts.block_tokens or 16,
        prefix_caching=bool(facts.prefix_caching),
    )


def _at_zero(fitted: Fitted) -> Iterator[Term]:
    yield from (term for term in fitted.terms if term.kept is None and term.value == 0)


def _range(groups: Sequence[Group]) -> str:
    works = [seen.work for group in groups for seen in group.seen]
    sequences, contexts = max(work.sequences for work in works), max(work.context_tokens for work in works)
    prefill = max(work.prefill_tokens for work in works)
    return f"steps of 1 to {sequences} sequences, up to {contexts:,} context and {prefill:,} prefill tokens"


def _source(experiment: Experiment, facts: ServerFacts, fitted: Fitted) -> str:
    manifest = experiment.manifest
    host = facts.host.cpu if facts.host and facts.host.cpu and facts.device == "cpu" else None
    where = f" on {host}, {facts.host.cores} cores" if host and facts.host else ""
    return (
        f"measured: loadgen calibrate of a {manifest.scenario} run of {manifest.started_at[:10]}, {facts.engine} "
        f"{facts.version or 'of unknown version'}{where}; {fitted.explained_ratio:.0%} of the variation of "
        f"{len(fitted.seconds):,} step times explained, typical error {fitted.spread:.0%}"
    )
