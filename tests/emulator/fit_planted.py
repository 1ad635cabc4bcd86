"""Runs of an engine whose coefficients are known, made in virtual time, as a client would have stored them."""

from pathlib import Path

import msgspec
import numpy as np

from loadgen.emulator.arm import emulated
from loadgen.emulator.profile import FormatKeys, MemoryKeys, ModelKeys, NoiseKeys, Profile, SchedulerKeys, StepKeys
from loadgen.experiment.simulate import simulated
from loadgen.records import ArmSpec, Experiment, ExperimentManifest, Plan, Request, Run, Sample, StagePlan, StageSpec
from loadgen.store import BlockWriter, block_folder, write_once

STEP = StepKeys(
    fixed_s=3e-3,
    weight_bandwidth_bytes_per_s=1.0,
    attention_bandwidth_bytes_per_s=1e10,
    token_s=9e-5,
    sequence_s=6e-5,
    prefill_pair_s=1.5e-7,
)
PROFILE = Profile(
    name="planted",
    source="planted",
    device="cpu",
    front_s=4e-3,
    model=ModelKeys(name="tiny", layers=8, kv_heads=8, head_dim=128, weight_bytes=0, max_model_len=2048),
    memory=MemoryKeys(kv_cache_bytes=134217728),
    step=STEP,
    formats={
        "bfloat16": FormatKeys(backend="CPU_ATTN"),
        "fp8": FormatKeys(
            backend="CPU_ATTN",
            attention_bandwidth_bytes_per_s=6.5e9,
            conversion_step_s=5e-4,
            conversion_stored_s=7e-5,
            conversion_prefill_s=4e-5,
        ),
    },
    scheduler=SchedulerKeys(max_num_seqs=64, max_num_batched_tokens=2048, block_tokens=128),
    noise=NoiseKeys(step=0.05, hiccups_per_minute=20, hiccup_s=0.03),
)


def requests(count: int, prompts: tuple[int, int], outputs: tuple[int, int], seed: int) -> tuple[Request, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        Request(
            index=index,
            runs=(Run(f"r{index}", int(rng.integers(*prompts, endpoint=True))),),
            output_tokens=int(rng.integers(*outputs, endpoint=True)),
        )
        for index in range(count)
    )


def stage(name: str, concurrency: int, asked: tuple[Request, ...]) -> StagePlan:
    role = "one_stream" if concurrency == 1 else "saturated"
    spec = StageSpec(name=name, role=role, concurrency=concurrency, planned=len(asked), warmup=0)
    return StagePlan(spec=spec, warmup=(), requests=asked)


ONE = stage("one-stream", 1, requests(8, (64, 1500), (40, 56), 1))
FULL = stage("saturated", 24, requests(72, (16, 180), (60, 300), 2))


def planned(*stages: StagePlan) -> Plan:
    return Plan(scenario="planted", seed=1, digest="d", stages=stages)


def run(
    plan: Plan,
    profile: Profile = PROFILE,
    *,
    formats: tuple[str, ...] = ("bfloat16", "fp8"),
    repeats: int = 2,
    flags: dict[str, str] | None = None,
) -> Experiment:
    """A run of these formats; `flags` are shared by the arms."""
    shared = flags or {}
    arms = tuple(ArmSpec(name=f, engine="emulator", flags={"kv-cache-dtype": f}, shared_flags=shared) for f in formats)
    manifest = ExperimentManifest(
        loadgen="0",
        command="",
        scenario="planted",
        scenario_text="",
        plan_digest="d",
        arms=arms,
        order=tuple(range(len(formats))) * repeats,
        restart="never",
        started_at="2026-01-02T00:00:00+00:00",
    )
    engines = [emulated(profile, {**shared, **arm.flags}) for arm in arms]
    return simulated(manifest, plan, engines, seed=7)


def stuttering(experiment: Experiment, *, seed: int = 0) -> Experiment:
    """The same run through a front that writes one stream after the other, and now and then rests in between."""
    rng = np.random.default_rng(seed)

    def late(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        events = sorted((at_s, number) for number, sample in enumerate(samples) for at_s in sample.events_s)
        arrivals: list[list[float]] = [[] for _ in samples]
        free_s = 0.0
        for at_s, number in events:
            free_s = max(free_s, at_s) + 2e-5 + (0.004 if rng.random() < 2e-4 else 0.0)
            arrivals[number].append(free_s)
        return tuple(
            msgspec.structs.replace(
                sample, events_s=tuple(seen), first_byte_s=seen[0], end_s=max(sample.end_s, seen[-1])
            )
            for sample, seen in zip(samples, arrivals, strict=True)
        )

    blocks = tuple(msgspec.structs.replace(block, samples=late(block.samples)) for block in experiment.blocks)
    return msgspec.structs.replace(experiment, blocks=blocks)


def changed(experiment: Experiment, **facts: object) -> Experiment:
    """The same run on servers that tell something else about themselves."""
    blocks = tuple(
        msgspec.structs.replace(block, facts=msgspec.structs.replace(block.facts, **facts))
        for block in experiment.blocks
    )
    return msgspec.structs.replace(experiment, blocks=blocks)


def stored(experiment: Experiment, plan: Plan | None, root: Path) -> Path:
    """The run as a directory."""
    write_once(root, experiment.manifest)
    if plan is not None:
        write_once(root, plan)
    for block in experiment.blocks:
        folder = block_folder(root, block.manifest.order, block.manifest.arm)
        writer = BlockWriter(folder)
        for record in (*block.samples, *block.scrapes, *block.marks):
            writer.append(record)
        writer.close()
        for once in (block.manifest, block.facts, block.end):
            if once is not None:
                write_once(folder, once)
    return root
