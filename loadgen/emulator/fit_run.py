"""A run directory as a fit needs it: which blocks count, what their servers were, and the steps of their stages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadgen.emulator.fit_shape import Shape
from loadgen.emulator.fit_steps import preemptions, steps_of, unreadable
from loadgen.emulator.fit_terms import Group
from loadgen.engines.kv_formats import KV_FORMATS
from loadgen.errors import UserError
from loadgen.records import ArmSpec, Block, Experiment, Role, Sample, ServerFacts, StageSpec

FULL = ("bfloat16", "float16")
LARGE_GPU_BYTES = 70 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the user adds to what the run tells."""

    name: str
    shape: Shape | None = None
    max_num_batched_tokens: int | None = None


def complete_blocks(experiment: Experiment, notes: list[str]) -> tuple[Block, ...]:
    """The blocks that ended whole; raises UserError where none did."""
    whole = tuple(block for block in experiment.blocks if block.end is not None and block.end.how == "complete")
    if not whole:
        raise UserError(f"{experiment.path}: no complete block: nothing to fit; finish it with compare --resume")
    lost = len(experiment.blocks) - len(whole)
    if lost:
        notes.append(f"left out: {lost} of {len(experiment.blocks)} blocks that did not end whole")
    return whole


def server_facts(experiment: Experiment, arm: str, blocks: Sequence[Block]) -> ServerFacts:
    """What an arm's server told; raises UserError where it told too little for a profile."""
    facts = next((block.facts for block in blocks if block.manifest.arm == arm), None)
    if facts is None:
        raise UserError(f"{experiment.path}: arm {arm}: no complete block; finish the run with compare --resume")
    lacking = [name for name in ("kv_dtype", "capacity_tokens", "block_tokens") if getattr(facts, name) is None]
    if facts.bytes_per_token is None and facts.kv_memory_bytes is None:
        lacking.append("bytes_per_token")
    if lacking:
        raise UserError(
            f"{experiment.path}: arm {arm}: the server ({facts.engine}) did not tell its {', '.join(lacking)}; "
            "calibrate needs a run of an engine that does, such as vllm"
        )
    if facts.kv_dtype not in KV_FORMATS:
        raise UserError(
            f"{experiment.path}: arm {arm}: KV format {facts.kv_dtype}: should be among {', '.join(KV_FORMATS)}"
        )
    return facts


def token_size_bytes(facts: ServerFacts) -> float:
    """Bytes of one cached token: as told, or memory / capacity."""
    if facts.bytes_per_token is not None:
        return facts.bytes_per_token
    return (facts.kv_memory_bytes or 0) / (facts.capacity_tokens or 1)


def budget_tokens(spec: ArmSpec, facts: ServerFacts, known: Known, notes: list[str]) -> int:
    """max_num_batched_tokens: given, a flag of the arm, or vLLM's default (get_batch_defaults, engine/arg_utils.py)."""
    if known.max_num_batched_tokens is not None:
        return known.max_num_batched_tokens
    flag = {**spec.shared_flags, **spec.flags}.get("max-num-batched-tokens", "")
    if flag.isdigit() and int(flag):
        return int(flag)
    memory = (facts.host.gpu_memory_bytes if facts.host else None) or 0
    assumed = 8192 if facts.device != "cpu" and memory >= LARGE_GPU_BYTES else 2048
    notes.append(
        f"max_num_batched_tokens is told by no endpoint: {assumed:,} assumed, vLLM's default for a server on such a "
        "device; --max-num-batched-tokens sets it"
    )
    return assumed


def step_groups(
    experiment: Experiment, blocks: Sequence[Block], budget: int, notes: list[str], *, role: Role | None = None
) -> tuple[Group, ...]:
    """The steps of each stage (of `role`, if one is given) of each block, warm-up left out.

    Notes what could not be read. Raises UserError where nothing could, or nothing with several requests in flight.
    """
    groups, complaints, batched = [], [], False
    for block, spec, samples in _parts(blocks, role):
        where = f"block {block.manifest.order} ({block.manifest.arm}), stage {spec.name}"
        reason = unreadable(samples)
        if reason is not None:
            complaints.append(f"{where}: {reason}")
            continue
        batched = batched or spec.concurrency != 1
        groups.append(
            Group(
                kv_dtype=str(block.facts.kv_dtype),
                bytes_per_token=token_size_bytes(block.facts),
                block=block.manifest.order,
                stage=spec.name,
                seen=steps_of(samples, budget_tokens=budget),
            )
        )
        notes += _disagreement(where, block, samples)
    if not groups:
        raise UserError(f"{experiment.path}: no stage can be read{_unread(complaints)}")
    if not batched and role is None:
        raise UserError(
            f"{experiment.path}: no stage with several requests in flight: what a batch costs cannot be fitted; "
            f"calibrate needs a stage with concurrency above 1{_unread(complaints)}"
        )
    notes += [f"left out: {complaint}" for complaint in complaints]
    return tuple(groups)


def _unread(complaints: Sequence[str]) -> str:
    if not complaints:
        return ""
    return f": {complaints[0]}" + (f"; and {len(complaints) - 1} more" if len(complaints) > 1 else "")


def _parts(blocks: Sequence[Block], role: Role | None) -> Iterator[tuple[Block, StageSpec, list[Sample]]]:
    for block in blocks:
        for spec in block.manifest.stages:
            samples = [one for one in block.samples if one.stage == spec.name and not one.warmup]
            if samples and role in (None, spec.role):
                yield block, spec, samples


def _disagreement(where: str, block: Block, samples: Sequence[Sample]) -> Iterator[str]:
    """Preemptions as reconstructed against the server's own counter."""
    began_s, ended_s = min(one.sent_s for one in samples), max(one.end_s for one in samples)
    counts = [
        (scrape.at_s, sum(engine.values["preemptions"] for engine in scrape.engines))
        for scrape in block.scrapes
        if scrape.engines and all("preemptions" in engine.values for engine in scrape.engines)
    ]
    first = [count for at_s, count in counts if at_s <= began_s]
    last = [count for at_s, count in counts if at_s >= ended_s]
    if not first or not last:
        return
    told, found = int(last[0] - first[-1]), preemptions(samples)
    if abs(told - found) > 2 + 0.1 * told:
        yield f"{where}: {found} preemptions reconstructed, the server counted {told}: its steps are misread in places"
