"""Experiments in virtual time: order, salts, restarts, what is stored, and that it is what a run would store."""

import io
import itertools
import os
import signal
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from loadgen.analysis.judge import judge
from loadgen.document import text_of
from loadgen.emulator.arm import emulated
from loadgen.emulator.facts import facts
from loadgen.emulator.profile import find, load
from loadgen.emulator.virtual_process import Process
from loadgen.errors import UserError
from loadgen.experiment import simulate
from loadgen.experiment.read_back import log_text, read_back
from loadgen.experiment.setup import Emulation, Reach, Setup, create, resume
from loadgen.experiment.simulate import blocks, engines_of, simulated
from loadgen.live.dashboard import Dashboard
from loadgen.records import ArmSpec, Block, Experiment, Plan, Scrape, Slo
from loadgen.store import read_experiment
from loadgen.workload.plan import build
from loadgen.workload.scenario import parse

SCENARIO = """
name: small
seed: 1
workload:
  input_tokens: {range: [200, 400]}
  output_tokens: {range: [4, 12]}
  shared_prefix: {tokens: 128, groups: 1}
stages:
  - {name: one-stream, concurrency: 1, requests: 4, warmup: 1}
  - {name: busy, concurrency: 4, requests: 12, warmup: 4}
"""
PROFILE = "cpu-tiny-llama"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build(parse(SCENARIO, Path("small.yaml")))


def arms(**shared: str) -> tuple[ArmSpec, ...]:
    common = {"profile": PROFILE, **{key.replace("_", "-"): value for key, value in shared.items()}}
    return tuple(
        ArmSpec(name=name, engine="emulator", flags={"kv-cache-dtype": dtype}, shared_flags=common)
        for name, dtype in (("bf16", "bfloat16"), ("fp8", "fp8"))
    )


def made(
    root: Path, plan: Plan, *, repeats: int = 2, restart: str = "each-block", seed: int = 1, **flags: str
) -> Setup:
    return create(
        root=root,
        command="loadgen simulate small",
        scenario=("small", SCENARIO),
        plan=plan,
        arms=arms(**flags),
        repeats=repeats,
        restart="never" if restart == "never" else "each-block",
        slo=Slo(),
        reach=Reach(),
        emulation=Emulation(profiles={PROFILE: text_of(find(PROFILE))}, noise_seed=seed),
    )


def computed(setup: Setup) -> Experiment:
    manifest = setup.manifest
    engines = engines_of(manifest.arms, manifest.profiles, setup.plan)
    return simulated(manifest, setup.plan, engines, seed=manifest.noise_seed or 0)


def run(setup: Setup) -> bool:
    return simulate.simulate(setup, Dashboard(io.StringIO()))


def stop_at(monkeypatch: pytest.MonkeyPatch, *readings: int) -> None:
    """Sends this process SIGINT at these readings of an engine's account, as Ctrl-C does."""
    count = itertools.count(1)

    def scraped(self: object, scrape: Scrape) -> None:
        if next(count) in readings:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(simulate._Onlooker, "scraped", scraped)


def hits(block: Block) -> dict[str, list[int]]:
    stages = dict.fromkeys(sample.stage for sample in block.samples)
    return {name: [s.cached_tokens or 0 for s in block.samples if s.stage == name] for name in stages}


def test_blocks_come_in_the_experiments_order_and_arms_do_the_same_work(tmp_path: Path, plan: Plan) -> None:
    whole = computed(made(tmp_path / "run", plan))
    assert [block.manifest.arm for block in whole.blocks] == ["bf16", "fp8", "fp8", "bf16"]
    work = [
        sorted((s.stage, s.warmup, s.index, s.prompt_tokens, s.output_tokens) for s in b.samples) for b in whole.blocks
    ]
    assert all(one == work[0] for one in work)
    assert {mark.ok for block in whole.blocks for mark in block.marks} == {1, 4, 12}
    assert [block.end.how for block in whole.blocks if block.end] == ["complete"] * 4


def test_what_is_stored_is_what_was_computed(tmp_path: Path, plan: Plan) -> None:
    setup = made(tmp_path / "run", plan)
    assert run(setup)
    read = read_experiment(setup.root)
    assert read.manifest == setup.manifest
    for block, held in zip(read.blocks, computed(setup).blocks, strict=True):
        assert msgspec.structs.replace(block, facts=held.facts) == held
    assert (read.blocks[0].facts.profile, read.manifest.client_host) == (PROFILE, None)


@pytest.mark.parametrize("profile", ["cpu-tiny-llama", "h100-llama3.1-8b", "h100-unfused", "a100-llama3.1-8b"])
def test_an_arms_log_is_read_back_to_what_the_profile_has(profile: str) -> None:
    for flags in ({"kv-cache-dtype": "bfloat16"}, {"kv-cache-dtype": "fp8", "max-num-seqs": "9"}):
        engine = emulated(load(profile), flags)
        log = log_text(engine, datetime(2026, 1, 2))
        read, planted = read_back(engine, log), facts(engine)
        assert "SIMULATED" in log.splitlines()[0]
        for name in ("engine", "version", "model", "max_model_len", "kv_dtype_asked", "kv_dtype", "capacity_tokens"):
            assert getattr(read, name) == getattr(planted, name)
        for name in ("block_tokens", "max_num_seqs", "prefix_caching", "device", "host", "profile", "profile_source"):
            assert getattr(read, name) == getattr(planted, name)
        assert [backend.name for backend in read.backends] == [backend.name for backend in planted.backends]
        assert read.kv_memory_bytes == pytest.approx(planted.kv_memory_bytes, rel=0.001)


def test_logs_lie_where_a_servers_would(tmp_path: Path, plan: Plan) -> None:
    setup = made(tmp_path / "run", plan, repeats=1)
    run(setup)
    logs = {path.name: path.read_text() for path in (setup.root / "servers").iterdir()}
    assert set(logs) == {"bf16.log", "fp8.log"}
    assert "fp8 cache of" in logs["fp8.log"]


def test_a_seed_is_its_noise(tmp_path: Path, plan: Plan) -> None:
    first, again, other = (
        computed(made(tmp_path / str(n), plan, seed=seed)).blocks[0].samples for n, seed in enumerate((1, 1, 2))
    )
    assert first == again != other


def test_blocks_share_a_salt_within_a_repeat_and_no_prompt_between_repeats(tmp_path: Path, plan: Plan) -> None:
    flags = {"enable_prefix_caching": "true"}
    kept = computed(made(tmp_path / "kept", plan, repeats=3, restart="never", **flags)).blocks
    by_salt = {(block.manifest.repeat, block.manifest.salt) for block in kept}
    assert len(by_salt) == 3
    # The shared prefix of 128 tokens is one block: each repeat computes it once, whatever the process has seen.
    for block in kept:
        found = hits(block)
        assert found["one-stream"] == [0, 128, 128, 128, 128]
        assert set(found["busy"]) == {128}
    fresh = computed(made(tmp_path / "fresh", plan, repeats=3, **flags)).blocks
    assert [hits(block) for block in fresh] == [hits(block) for block in kept]


def test_processes_live_as_long_as_the_experiment_says(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    for restart, processes in (("never", 2), ("each-block", 4)):
        born: list[object] = []
        monkeypatch.setattr(simulate, "Process", lambda *a, born=born, **k: born.append(k["seed"]) or Process(*a, **k))
        whole = computed(made(tmp_path / restart, plan, restart=restart))
        assert len(born) == len(set(born)) == processes
        counted = [block.scrapes[0].engines[0].values["requests_finished"] for block in whole.blocks]
        assert counted == ([0, 0, 21, 21] if restart == "never" else [0] * 4)


def test_a_report_of_it_says_that_no_server_and_no_client_were_there(tmp_path: Path, plan: Plan) -> None:
    report = judge(computed(made(tmp_path / "run", plan)))
    assert (report.simulated, report.virtual_time, report.innocence) == (True, True, ())
    assert report.title == "fp8 against bf16: small"
    assert not any("client" in line for line in report.warnings)


def test_ctrl_c_keeps_what_there_is_and_resuming_ends_as_if_nothing_had_been(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = computed(made(tmp_path / "other", plan)).blocks
    with monkeypatch.context() as patched:
        stop_at(patched, len(undisturbed[0].scrapes) + 6)
        assert not run(made(tmp_path / "run", plan))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    first, second = read_experiment(tmp_path / "run").blocks
    assert second.end is not None
    assert (first.end, second.end.how) == (undisturbed[0].end, "interrupted")
    assert second.end.detail.startswith("stopped within stage ")
    for mark in second.marks:
        held = [s for s in second.samples if (s.stage, s.warmup) == (mark.stage, mark.warmup)]
        assert (mark.sent, mark.failed) == (len(held), sum(not s.ok for s in held))
        assert (mark.planned, mark.sent) == (mark.sent + mark.unsent, mark.ok + mark.failed)
    again = resume(tmp_path / "run", Reach(), virtual_time=True)
    assert again.done == {0}
    assert run(again)
    whole = {b.manifest.order: b for b in read_experiment(tmp_path / "run").blocks if b.end and b.end.how == "complete"}

    def seen(block: Block) -> tuple[object, ...]:
        return block.marks, block.samples, block.scrapes, block.end

    assert [seen(whole[position]) for position in range(4)] == [seen(block) for block in undisturbed]


def test_ctrl_c_twice_ends_at_once(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 3, 4)
    with pytest.raises(KeyboardInterrupt):
        run(made(tmp_path / "run", plan))


def test_real_and_simulated_runs_are_not_gone_on_with_as_each_other(tmp_path: Path, plan: Plan) -> None:
    setup = made(tmp_path / "run", plan)
    with pytest.raises(UserError, match=r"should be `loadgen simulate --resume .*run`"):
        resume(setup.root, Reach())
    real = msgspec.structs.replace(setup.manifest, noise_seed=None)
    (setup.root / "experiment.json").write_bytes(msgspec.json.encode(real))
    with pytest.raises(UserError, match=r"should be `loadgen compare --resume .*run`"):
        resume(setup.root, Reach(), virtual_time=True)


def test_every_arm_that_cannot_be_is_named_with_its_reason(plan: Plan) -> None:
    profiles = {PROFILE: text_of(find(PROFILE))}
    with pytest.raises(UserError) as told:
        engines_of(arms(max_num_seqs="none"), profiles, plan)
    shoulds = [complaint.partition(": max-num-seqs=none: should be ")[0] for complaint in told.value.complaints]
    assert shoulds == ["arm bf16", "arm fp8"]
    with pytest.raises(UserError, match=r"arm bf16: stage one-stream: a request of ... tokens: .* serves at most 128 "):
        engines_of(arms(max_model_len="128", max_num_batched_tokens="128"), profiles, plan)
    with pytest.raises(UserError, match="arm x: no profile; give --profile"):
        engines_of([ArmSpec(name="x", engine="emulator")], profiles, plan)


def test_blocks_are_computed_one_at_a_time(tmp_path: Path, plan: Plan) -> None:
    setup = made(tmp_path / "run", plan)
    found = blocks(
        setup.manifest,
        plan,
        engines_of(setup.manifest.arms, setup.manifest.profiles, plan),
        seed=1,
        scrape_interval_s=1.0,
    )
    first = next(found)
    assert [scrape.at_s for scrape in first.scrapes][:3] == [0.0, 1.0, 2.0]
    assert first.manifest.started_at == setup.manifest.started_at
    assert next(found).manifest.started_at > first.manifest.started_at
