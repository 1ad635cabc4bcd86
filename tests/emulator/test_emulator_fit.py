"""Known coefficients come back from what a client saw, and what cannot be known is said."""

import msgspec
import pytest
import yaml
from emulator.fit_planted import FULL, ONE, PROFILE, STEP, changed, planned, requests, run, stage, stuttering

from loadgen.emulator import fit_shape
from loadgen.emulator.fit import calibrated, engines, with_format
from loadgen.emulator.fit_run import Known
from loadgen.emulator.fit_text import as_yaml, lines
from loadgen.emulator.profile import Profile, load
from loadgen.errors import UserError
from loadgen.records import Experiment, Failure

KNOWN = Known(name="fitted")


@pytest.fixture(scope="module")
def measured() -> Experiment:
    return stuttering(run(planned(ONE, FULL), repeats=3))


def test_planted_coefficients_come_back(measured):
    found = calibrated(measured, KNOWN).profile
    step, fp8 = found.step, found.formats["fp8"]
    assert step.fixed_s == pytest.approx(STEP.fixed_s, rel=0.05)
    assert step.attention_bandwidth_bytes_per_s == pytest.approx(1e10, rel=0.05)
    assert step.token_s == pytest.approx(STEP.token_s, rel=0.15)
    assert step.token_s + step.sequence_s == pytest.approx(STEP.token_s + STEP.sequence_s, rel=0.05)
    assert step.prefill_pair_s == pytest.approx(STEP.prefill_pair_s, rel=0.10)
    assert fp8.attention_bandwidth_bytes_per_s == pytest.approx(6.5e9, rel=0.05)
    assert fp8.conversion_step_s == pytest.approx(5e-4, rel=0.25)
    assert fp8.conversion_stored_s == pytest.approx(7e-5, rel=0.15)
    assert found.front_s == pytest.approx(4e-3, rel=0.25)


def test_intervals_hold_most_planted_values(measured):
    truth = {
        ("fixed_s", None): STEP.fixed_s,
        ("token_s", None): STEP.token_s,
        ("sequence_s", None): STEP.sequence_s,
        ("read_s_per_byte", "bfloat16"): 1e-10,
        ("read_s_per_byte", "fp8"): 1 / 6.5e9,
        ("prefill_pair_s", None): STEP.prefill_pair_s,
        ("conversion_step_s", "fp8"): 5e-4,
        ("conversion_stored_s", "fp8"): 7e-5,
        ("conversion_prefill_s", "fp8"): 4e-5,
    }
    found = calibrated(measured, KNOWN)
    held = [
        term.lo <= truth[term.name, term.kv_dtype] <= term.hi
        for term in found.fitted.terms
        if (term.name, term.kv_dtype) in truth and term.lo is not None and term.hi is not None
    ]
    assert len(held) == len(truth)
    assert sum(held) >= len(held) - 2
    assert found.fitted.explained_ratio > 0.97


def test_noise_comes_back(measured):
    noise = calibrated(measured, KNOWN).profile.noise
    assert noise.step == pytest.approx(PROFILE.noise.step, rel=0.3)
    assert noise.hiccups_per_minute * noise.hiccup_s == pytest.approx(20 * 0.03, rel=0.5)


def test_blocks_that_differ_are_wander_where_servers_stay_up_and_start_where_they_do_not():
    noisy = PROFILE.model_copy(update={"noise": PROFILE.noise.model_copy(update={"start": 0.2})})
    measured = run(planned(ONE, FULL), noisy, formats=("bfloat16",), repeats=3)
    restarted = msgspec.structs.replace(
        measured, manifest=msgspec.structs.replace(measured.manifest, restart="each-block")
    )
    assert calibrated(measured, KNOWN).profile.noise.start == 0
    kept = calibrated(restarted, KNOWN)
    assert kept.profile.noise.wander == 0
    assert any("noise.start" in note for note in kept.notes)


def test_what_the_server_told_becomes_the_profile(measured):
    found = calibrated(measured, KNOWN).profile
    assert (found.model.layers, found.model.kv_heads, found.model.head_dim) == (8, 8, 128)
    assert found.memory.kv_cache_bytes == 134217728
    assert (found.scheduler.max_num_seqs, found.scheduler.block_tokens) == (64, 128)
    arms = engines(found, measured)
    assert [arm.capacity_tokens for arm in arms] == [4096, 8192]


def test_the_written_profile_can_be_loaded(measured, tmp_path):
    found = calibrated(measured, KNOWN)
    path = tmp_path / "fitted.yaml"
    path.write_text(as_yaml(found.profile), encoding="utf-8")
    assert load(str(path)) == found.profile
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert "2026-01-02" in content["source"]
    assert "0.32.0" in content["source"]
    assert "emulator" in content["source"]
    assert any("GB/s" in line for line in lines(found))


def test_a_prefill_beyond_the_budget_spans_steps():
    flags = {"max-num-batched-tokens": "256"}
    plan = planned(ONE, stage("saturated", 6, requests(24, (300, 700), (40, 90), 3)))
    found = calibrated(run(plan, formats=("bfloat16",), flags=flags), KNOWN)
    assert found.profile.scheduler.max_num_batched_tokens == 256
    assert not [note for note in found.notes if "max_num_batched_tokens" in note]
    step = found.profile.step
    assert step.fixed_s == pytest.approx(STEP.fixed_s, rel=0.08)
    assert step.token_s == pytest.approx(STEP.token_s, rel=0.15)
    assert step.prefill_pair_s == pytest.approx(STEP.prefill_pair_s, rel=0.15)


def test_one_streams_own_terms_foretell_a_format():
    plan = planned(ONE, FULL)
    found = calibrated(run(plan, formats=("bfloat16",)), KNOWN)
    other = run(plan, formats=("fp8",))
    alone = with_format(found, other, KNOWN, role=None).formats["fp8"]
    assert alone.attention_bandwidth_bytes_per_s is None
    assert alone.conversion_step_s == 0
    own = with_format(found, other, KNOWN, role="one_stream").formats["fp8"]
    assert own.attention_bandwidth_bytes_per_s == pytest.approx(6.5e9, rel=0.15)
    assert own.conversion_step_s + own.conversion_stored_s == pytest.approx(5.7e-4, rel=0.2)


def test_prompts_of_one_length_leave_the_quadratic_term_open():
    plan = planned(
        stage("one-stream", 1, requests(6, (400, 400), (40, 40), 1)),
        stage("busy", 2, requests(12, (400, 400), (40, 40), 1)),
    )
    still = PROFILE.model_copy(update={"noise": NoNoise})
    found = calibrated(run(plan, still, formats=("bfloat16",)), KNOWN)
    kept = {term.name: term for term in found.fitted.terms if term.kept}
    assert {"front_s", "prefill_pair_s"} & set(kept)
    for name, term in kept.items():
        assert term.value == 0
        assert any(note.startswith(f"{name}: the run ") and note.endswith("kept at 0") for note in found.notes)


def test_one_format_is_said(measured):
    found = calibrated(run(planned(ONE, FULL), formats=("bfloat16",), repeats=1), KNOWN)
    assert any(note.startswith("one KV format") for note in found.notes)
    assert all(term.lo is None for term in found.fitted.terms)
    assert any("one block" in line for line in lines(found))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"capacity_tokens": None}, "did not tell its capacity_tokens"),
        ({"kv_dtype": None, "engine": "openai"}, "(openai) did not tell its kv_dtype"),
        ({"bytes_per_token": None, "kv_memory_bytes": None}, "did not tell its bytes_per_token"),
        ({"kv_dtype": "q8_0"}, "KV format q8_0: should be among bfloat16"),
    ],
)
def test_servers_that_tell_too_little_are_refused_in_one_line(measured, facts, said):
    with pytest.raises(UserError) as refused:
        calibrated(changed(measured, **facts), KNOWN)
    assert said in str(refused.value)
    assert len(refused.value.complaints) == 1


def test_no_batch_is_refused():
    with pytest.raises(UserError, match="no stage with several requests in flight"):
        calibrated(run(planned(ONE), formats=("bfloat16",)), KNOWN)


def test_no_complete_block_is_refused(measured):
    cut = msgspec.structs.replace(
        measured, blocks=tuple(msgspec.structs.replace(block, end=None) for block in measured.blocks)
    )
    with pytest.raises(UserError, match="no complete block"):
        calibrated(cut, KNOWN)
    with pytest.raises(UserError, match="arm fp8: no complete block"):
        calibrated(msgspec.structs.replace(measured, blocks=measured.blocks[:1]), KNOWN)


def _failing(experiment: Experiment, stages: tuple[str, ...]) -> Experiment:
    failure = Failure(kind="timeout")
    blocks = tuple(
        msgspec.structs.replace(
            block,
            samples=tuple(
                msgspec.structs.replace(s, failure=failure) if s.stage in stages and s.index == 1 else s
                for s in block.samples
            ),
        )
        for block in experiment.blocks
    )
    return msgspec.structs.replace(experiment, blocks=blocks)


def test_stages_with_failed_requests_are_left_out_and_said(measured):
    found = calibrated(_failing(measured, ("one-stream",)), KNOWN)
    assert any("left out" in note and "1 of 8 requests failed" in note for note in found.notes)
    with pytest.raises(UserError, match=r"no stage can be read: block 0 .*requests failed.*; and 11 more") as refused:
        calibrated(_failing(measured, ("one-stream", "saturated")), KNOWN)
    assert len(refused.value.complaints) == 1


def test_a_server_that_sends_several_tokens_an_event_cannot_be_read(measured):
    blocks = tuple(
        msgspec.structs.replace(
            block, samples=tuple(msgspec.structs.replace(s, events_s=s.events_s[::2]) for s in block.samples)
        )
        for block in measured.blocks
    )
    with pytest.raises(UserError, match="cannot be told apart"):
        calibrated(msgspec.structs.replace(measured, blocks=blocks), KNOWN)


def test_shapes(tmp_path):
    assert fit_shape.from_text("layers=4, kv_heads=2,head_dim=64") == fit_shape.Shape(layers=4, kv_heads=2, head_dim=64)
    assert fit_shape.size_of(fit_shape.equivalent(131072, "bfloat16"), "bfloat16") == 131072
    assert fit_shape.size_of(fit_shape.equivalent(7 * 512, "fp8"), "fp8") == 7 * 512
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 256}')
    assert fit_shape.from_model(tmp_path) == fit_shape.Shape(layers=3, kv_heads=4, head_dim=64)
    for bad in ("layers=4", "layers=0,kv_heads=1,head_dim=2", "a"):
        with pytest.raises(UserError, match="should be like"):
            fit_shape.from_text(bad)
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3}')
    with pytest.raises(UserError, match="no kv_heads, head_dim"):
        fit_shape.from_model(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        fit_shape.from_model(tmp_path / "none")


def test_a_shape_that_is_not_the_servers_is_refused(measured):
    wrong = Known(name="x", shape=fit_shape.Shape(layers=4, kv_heads=8, head_dim=128))
    with pytest.raises(UserError, match="16,384 bytes per bfloat16 token; the server has 32,768"):
        calibrated(measured, wrong)


def test_skipped_layers_follow_from_the_size_of_a_token():
    shape = fit_shape.Shape(layers=8, kv_heads=8, head_dim=128)
    assert fit_shape.skipped_layers(shape, "fp8", 16384) == 0
    assert fit_shape.skipped_layers(shape, "fp8", 16384 + 4 * 2048) == 4
    assert fit_shape.skipped_layers(shape, "bfloat16", 32768) == 0


NoNoise = Profile.model_fields["noise"].default
