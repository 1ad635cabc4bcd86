import dataclasses

import msgspec
import numpy as np
import pytest
from fakes import synthetic
from fakes.batching import Engine, Noise
from fakes.synthetic import BF16, FP8, Arm, lengths, one_stream, open_loop, saturated

from loadgen.analysis.case import Case
from loadgen.analysis.causes.conversion import conversion
from loadgen.analysis.causes.memory import Memory
from loadgen.analysis.decompose import decompose, prefill
from loadgen.analysis.judge import judge
from loadgen.analysis.study import study
from loadgen.records import BackendSeen, Estimate, ServerFacts

QUIET = Noise(block=0.003, step=0.03)
PROMPTS = one_stream(lengths(10, (64, 1500), (60, 90)))
LOAD = saturated(lengths(100, (64, 256), (32, 96)), concurrency=32)


MADE: dict[str, object] = {}


def run(base=BF16, test=FP8, stages=(PROMPTS, LOAD), noise=QUIET, repeats=4):
    key = repr((base, test, stages, noise, repeats))
    if key not in MADE:
        MADE[key] = synthetic.experiment((base, test), stages, repeats=repeats, noise=noise)
    return MADE[key]


def findings(experiment, **options):
    return {finding.cause: finding for finding in judge(experiment, **options).findings}


def with_facts(experiment, arm, **changes):
    for number, block in enumerate(experiment.blocks):
        if block.manifest.arm == arm:
            facts = msgspec.structs.replace(block.facts, **changes)
            experiment = synthetic.edited(experiment, number, facts=facts)
    return experiment


def engine(**changes):
    return dataclasses.replace(Engine(), **changes)


FREE = Arm(name="fp8", kv_dtype="fp8", engine=engine(capacity_tokens=8192, per_context_s=1.4e-6))


# --- backend


def test_the_same_backend_from_the_log_is_innocent():
    logged = (BackendSeen(name="FLASH_ATTN", how="log", line="Using FLASH_ATTN attention backend"),)
    experiment = with_facts(with_facts(run(test=FREE), "bf16", backends=logged), "fp8", backends=logged)
    found = findings(experiment)["backend"]
    assert (found.verdict, found.advice) == ("does not hold", "")
    assert found.evidence[0].source == "Using FLASH_ATTN attention backend"


def test_an_assumed_backend_is_said_to_be_assumed():
    found = findings(run(test=FREE))["backend"]
    assert found.verdict == "does not hold"
    assert "CPU_ATTN (assumed, not read from a log)" in found.claim


def test_an_unknown_backend_is_not_observable():
    found = findings(with_facts(run(), "fp8", backends=()))["backend"]
    assert (found.verdict, found.advice) == ("not observable", "Give the server's log: --log fp8=FILE.")
    unknown = (BackendSeen(name="?", how="unknown"),)
    assert findings(with_facts(run(), "bf16", backends=unknown))["backend"].verdict == "not observable"


def test_a_changed_backend_with_a_loss_holds_and_without_one_cannot_tell():
    other = (BackendSeen(name="FLASHINFER", how="log"),)
    slower = with_facts(run(), "fp8", backends=other)
    found = findings(slower)["backend"]
    assert found.verdict == "holds"
    assert "CPU_ATTN ran bf16, FLASHINFER ran fp8" in found.claim
    assert "bf16 pinned to FLASHINFER" in found.advice
    faster = Arm(name="fp8", kv_dtype="fp8", engine=engine(step_s=0.007, prefill_s=3e-4, capacity_tokens=8192))
    found = findings(with_facts(run(test=faster), "fp8", backends=other))["backend"]
    assert found.verdict == "cannot tell"
    assert "third arm" in found.advice


@pytest.mark.parametrize(
    "line",
    [
        "Cannot use FlashAttention-2 backend for FP8 KV cache.",
        "--kv-cache-dtype is not supported by the V1 Engine. Falling back to V0. ",
        "--block-size 32 precluded higher-priority backend(s) FLASH_ATTN. Using TRITON_ATTN instead, which may result "
        "in reduced performance.",
        "no FlashAttention vector kernel compiled for K/V types q5_0-q4_0, converting K and V to f16 instead (slow)...",
    ],
)
def test_a_logged_fallback_holds_unless_both_arms_log_it(line):
    warned = with_facts(run(test=FREE), "fp8", warnings=(line,))
    found = findings(warned)["backend"]
    assert found.verdict == "holds"
    assert line in found.claim
    assert findings(with_facts(warned, "bf16", warnings=(line,)))["backend"].verdict == "does not hold"


def test_a_warning_that_tells_nothing_of_kernels_is_no_fallback():
    line = "Using KV cache scaling factor 1.0 for fp8_e4m3."
    assert findings(with_facts(run(test=FREE), "fp8", warnings=(line,)))["backend"].verdict == "does not hold"


def test_a_kernel_that_reads_the_smaller_cache_slower():
    worse = Arm(name="fp8", kv_dtype="fp8", engine=engine(per_context_s=4.2e-6, capacity_tokens=8192))
    found = findings(run(test=worse))
    assert found["backend"].verdict == "holds"
    assert "costs fp8 1." in found["backend"].claim
    assert found["short context"].verdict == "does not hold"
    assert "not read in place" in found["short context"].claim


def test_one_name_without_one_stream_clears_no_kernel():
    found = findings(run(test=FREE, stages=(LOAD,)))["backend"]
    assert found.verdict == "cannot tell"
    assert "no fallback was logged; whether the smaller cache is read faster is not shown" in found.claim
    assert "Add a stage with `concurrency: 1`" in found.advice
    same = with_facts(run(test=FREE, stages=(LOAD,)), "fp8", kv_dtype="bfloat16")
    assert findings(same)["backend"].verdict == "does not hold"


# --- conversion


def test_a_dearer_step_is_found_with_its_size():
    dear = Arm(name="fp8", kv_dtype="fp8", engine=engine(step_s=0.011, capacity_tokens=8192))
    found = findings(run(test=dear))["conversion"]
    assert found.verdict == "holds"
    step = judge(run(test=dear)).decomposition.intercept_difference_s
    assert step.lo < 0.002 < step.hi
    assert step.center == pytest.approx(0.002, rel=0.1)
    assert "A decode step costs fp8 2" in found.claim
    assert "prefill" not in found.claim


def test_dearer_prefill_is_found_from_lengths_and_from_one_length():
    dear = Arm(name="fp8", kv_dtype="fp8", engine=engine(prefill_s=6e-4, capacity_tokens=8192))
    found = findings(run(test=dear))["conversion"]
    assert found.verdict == "holds"
    assert "Prefill costs fp8 1.3" in found.claim
    assert "per prompt token" in found.claim
    constant = one_stream(((800, 60),) * 8)
    found = findings(run(test=dear, stages=(constant, LOAD)))["conversion"]
    assert "median TTFT at 800 prompt tokens" in found.claim


def test_a_dearer_step_on_another_kernel_may_be_the_kernels():
    dear = Arm(name="fp8", kv_dtype="fp8", engine=engine(step_s=0.011, capacity_tokens=8192))
    other = with_facts(run(test=dear), "fp8", backends=(BackendSeen(name="FLASHINFER", how="log"),))
    found = findings(other)["conversion"]
    assert found.verdict == "cannot tell"
    assert "CPU_ATTN ran bf16, FLASHINFER ran fp8" in found.claim
    assert "third arm" in found.advice
    unknown = (BackendSeen(name="?", how="unknown"),)
    assert findings(with_facts(run(test=dear), "fp8", backends=unknown))["conversion"].verdict == "holds"


@pytest.mark.parametrize(("step_p", "prompt_p", "verdict"), [(0.04, 0.5, "cannot tell"), (0.02, 0.5, "holds")])
def test_step_and_prefill_are_looked_at_together(step_p, prompt_p, verdict):
    cut = study(run(test=FREE))
    decode, prompt = decompose(cut), prefill(cut)
    shown = Estimate(center=2e-4, lo=1e-5, hi=1e-3, n=4)
    case = Case(
        study=cut,
        differences={},
        decode=dataclasses.replace(
            decode, p=step_p, decomposition=msgspec.structs.replace(decode.decomposition, intercept_difference_s=shown)
        ),
        prefill=dataclasses.replace(prompt, p=prompt_p, ratio=Estimate(center=1.01, lo=0.98, hi=1.04, n=4)),
        predicted_ratio=lambda base, test: None,
    )
    assert conversion(case).verdict == verdict


def test_no_conversion_is_not_claimed():
    assert findings(run(test=FREE))["conversion"].verdict == "does not hold"


def test_conversion_within_noise_is_neither_shown_nor_ruled_out():
    found = findings(run(test=FREE, noise=Noise(block=0.08), repeats=2))["conversion"]
    assert found.verdict == "cannot tell"


def test_prefill_counts_what_had_to_be_computed():
    """Half of each prompt was found in a cache: a computed token costs twice what a prompt token does."""
    experiment = run(test=FREE)
    plain = prefill(study(experiment)).slopes["bf16"].center
    for number, block in enumerate(experiment.blocks):
        samples = tuple(synthetic.replace_record(s, cached_tokens=s.prompt_tokens // 2) for s in block.samples)
        experiment = synthetic.edited(experiment, number, samples=samples)
    assert prefill(study(experiment)).slopes["bf16"].center == pytest.approx(2 * plain, rel=0.02)


def test_quadratic_prefill_is_evidence():
    bent = Arm(name="fp8", kv_dtype="fp8", engine=engine(prefill2_s=2e-7, capacity_tokens=8192))
    found = findings(run(test=bent))["conversion"]
    figure = next(one for one in found.evidence if one.label == "fp8's prefill, quadratic")
    assert float(figure.value.split()[0]) == pytest.approx(2e-7, rel=0.25)


# --- short context


H100 = engine(step_s=6.44e-3, per_sequence_s=0, per_context_s=4.37e-8, prefill_s=2e-6, capacity_tokens=400_000)
H100_FP8 = dataclasses.replace(H100, step_s=6.58e-3, per_context_s=2.37e-8, capacity_tokens=800_000)
LONG = one_stream(lengths(12, (500, 30_000), (100, 130)))
STILL = Noise(block=0.0005, step=0.005)


def h100(load):
    arms = (Arm(name="bf16", engine=H100), Arm(name="fp8", kv_dtype="fp8", engine=H100_FP8))
    return synthetic.experiment(arms, (LONG, load), repeats=4, noise=STILL)


def test_published_break_even_is_recovered_and_short_traffic_lies_below_it():
    # vLLM blog 2026-04-22, Llama-3.1-8B on H100: 7,010 tokens
    experiment = h100(saturated(lengths(40, (200, 1500), (50, 100)), concurrency=8))
    report = judge(experiment)
    made = report.decomposition
    assert made.break_even_tokens.center == pytest.approx(7010, rel=0.05)
    assert made.break_even_tokens.lo < 7000 < made.break_even_tokens.hi
    assert made.slope_ratio.center == pytest.approx(2.37 / 4.37, rel=0.03)
    assert made.break_even.startswith("fp8 decodes faster above ")
    assert made.share_above == 0
    found = {f.cause: f for f in report.findings}
    assert found["short context"].verdict == "holds"
    assert "0 % of this traffic's tokens" in found["short context"].claim
    assert found["conversion"].verdict == "holds"
    assert found["unused memory"].verdict == "holds"


def test_long_traffic_lies_above_the_break_even():
    found = findings(h100(saturated(lengths(30, (12_000, 20_000), (20, 40)), concurrency=4)))["short context"]
    assert found.verdict == "does not hold"
    assert "100 % of this traffic's tokens" in found.claim


def test_traffic_on_both_sides_of_the_interval_cannot_tell():
    rough = Noise(block=0.002, step=0.01)
    arms = (Arm(name="bf16", engine=H100), Arm(name="fp8", kv_dtype="fp8", engine=H100_FP8))
    load = saturated(lengths(40, (6200, 7400), (30, 60)), concurrency=4)
    report = judge(synthetic.experiment(arms, (LONG, load), repeats=4, noise=rough))
    root = report.decomposition.break_even_tokens
    assert root.lo < 6300
    assert root.hi > 7300
    assert {f.cause: f.verdict for f in report.findings}["short context"] == "cannot tell"


def test_faster_at_every_context():
    report = judge(run(test=FREE))
    assert report.decomposition.break_even.startswith("always: fp8 decodes faster")
    assert {f.cause: f.verdict for f in report.findings}["short context"] == "does not hold"


def test_slower_at_every_context():
    worse = Arm(name="fp8", kv_dtype="fp8", engine=engine(step_s=0.011, per_context_s=3.6e-6, capacity_tokens=8192))
    assert judge(run(test=worse)).decomposition.break_even.startswith("never within the ")


def test_parallel_lines_are_not_told_apart():
    same = Arm(name="fp8", kv_dtype="fp8", engine=engine(capacity_tokens=8192))
    report = judge(run(test=same))
    assert report.decomposition.break_even.startswith("not determined")
    assert report.decomposition.share_above is None
    assert {f.cause: f.verdict for f in report.findings}["short context"] == "cannot tell"


def test_without_one_stream_nothing_is_said_of_conversion_and_context():
    found = findings(run(stages=(LOAD,)))
    assert found["conversion"].verdict == found["short context"].verdict == "not observable"
    assert "concurrency: 1" in found["conversion"].advice


# --- unused memory


def test_freed_blocks_that_became_work():
    report = judge(run())
    found = {f.cause: f for f in report.findings}["unused memory"]
    assert found.verdict == "does not hold"
    assert found.claim.startswith("The freed blocks became scheduled work: mean batch ")
    assert "preemptions" in found.claim
    assert report.checklist[4].passed is True
    assert report.checklist[2].passed is True


def test_capacity_that_was_never_binding_names_the_client():
    light = saturated(lengths(30, (64, 128), (32, 64)), concurrency=2)
    report = judge(run(stages=(PROMPTS, light)))
    found = {f.cause: f for f in report.findings}["unused memory"]
    assert found.verdict == "holds"
    assert found.claim.startswith("Capacity was not binding for bf16 (KV usage peak ")
    assert "0 preemptions a block, 0 waiting" in found.claim
    assert "All 2 requests of the client run at once" in found.advice
    assert report.checklist[4].passed is False
    assert report.checklist[2].passed is False


def test_an_open_loop_that_the_server_keeps_up_with_names_the_rate():
    found = findings(run(stages=(open_loop(lengths(40, (64, 128), (16, 32)), 0.5),)))["unused memory"]
    assert found.verdict == "holds"
    assert "`rate`" in found.advice


@pytest.mark.parametrize("told", [True, False])
def test_a_small_batch_cap_is_named(told):
    capped = dataclasses.replace(FP8, engine=dataclasses.replace(FP8.engine, max_num_seqs=12))
    experiment = run(test=capped)
    if not told:
        experiment = with_facts(with_facts(experiment, "fp8", max_num_seqs=None), "bf16", max_num_seqs=None)
    found = findings(experiment)["unused memory"]
    assert found.verdict == "holds"
    assert "stands empty beside a queue" in found.claim
    assert "`--max-num-seqs`" in found.advice
    assert ("runs the most sequences that it may, 12" in found.advice) == told


def test_a_cap_on_both_arms_that_left_capacity_unused():
    base, test = (dataclasses.replace(a, engine=dataclasses.replace(a.engine, max_num_seqs=6)) for a in (BF16, FP8))
    found = findings(run(base=base, test=test))["unused memory"]
    assert found.verdict == "holds"
    assert "Capacity was not binding" in found.claim
    assert "bf16 runs the most sequences that it may, 6" in found.advice


def test_a_format_that_freed_nothing():
    ignored = dataclasses.replace(FP8, engine=dataclasses.replace(FP8.engine, capacity_tokens=4096))
    report = judge(run(test=ignored), predicted_ratio=lambda base, test: 2.0)
    found = {f.cause: f for f in report.findings}["unused memory"]
    assert found.verdict == "does not hold"
    assert found.claim == "No memory was freed: fp8 holds 1.00× the tokens of bf16."
    assert report.checklist[4].passed is False
    assert any(line.startswith("capacity: fp8 holds 1.00×") and "2.00×" in line for line in report.warnings)


def test_a_capacity_as_predicted_is_no_warning():
    report = judge(run(), predicted_ratio=lambda base, test: {("bfloat16", "fp8"): 2.0}.get((base, test)))
    assert not any(line.startswith("capacity") for line in report.warnings)
    found = {f.cause: f for f in report.findings}["unused memory"]
    assert any("2.00× predicted" in figure.value for figure in found.evidence)


@pytest.mark.parametrize(
    ("peak", "preemptions", "waiting", "running", "binding"),
    [
        (0.95, 0, 0.0, 5, True),
        (0.5, 3, 0.0, 5, True),
        (0.8, 0, 0.9, 5, True),  # a queue before a nearly full cache, though the batch has room
        (0.8, 0, 0.9, 64, False),  # the batch is at its cap: that is what holds it
        (0.5, 0, 0.9, 5, False),
        (0.8, 0, 0.1, 5, False),
        (0.5, None, None, 5, False),
    ],
)
def test_when_capacity_binds(peak, preemptions, waiting, running, binding):
    used = Memory(
        arm="a",
        spec=LOAD.spec,
        usage_peak=peak,
        usage_mean=peak,
        running_mean=running,
        running_peak=running,
        waiting_mean=waiting,
        waiting_share=waiting,
        preemptions=preemptions,
        tokens_per_step=None,
        capacity_tokens=None,
        max_num_seqs=64,
    )
    assert used.binding == binding


def test_running_that_did_not_grow_with_the_capacity():
    """Capacities are told apart, but the test arm's engine really has the base's: its batch does not grow."""
    ignored = dataclasses.replace(FP8, engine=dataclasses.replace(FP8.engine, capacity_tokens=4096))
    experiment = with_facts(run(test=ignored), "fp8", capacity_tokens=8192)
    found = findings(experiment)["unused memory"]
    assert (found.verdict, found.claim[:31]) == ("holds", "Less than a tenth of the freed ")


def test_a_batch_that_grew_by_a_little_of_what_was_freed():
    """Capacity is told to double; the batch grows by a twentieth, and that is shown."""
    hardly = dataclasses.replace(FP8, engine=dataclasses.replace(FP8.engine, capacity_tokens=4300))
    experiment = with_facts(run(test=hardly), "fp8", capacity_tokens=8192)
    cut = study(experiment)
    base, test = (np.mean(cut.values("running_mean", "saturated", arm)) for arm in ("bf16", "fp8"))
    assert 1.0 < test / base < 1.1
    assert findings(experiment)["unused memory"].verdict == "holds"


def test_facts_of_nothing_leave_every_cause_standing():
    experiment = run()
    for number in range(len(experiment.blocks)):
        experiment = synthetic.edited(experiment, number, facts=ServerFacts(engine="unknown"))
    found = findings(experiment)
    assert len(found) == 4
    assert found["backend"].verdict == "not observable"
    assert found["unused memory"].verdict == "does not hold"
