"""Was the traffic as planned: prompt tokens by the server's count, prefix hits beside the theory."""

import math

import pytest
from fakes import synthetic
from fakes.synthetic import BF16, FP8, lengths, replace_record, saturated

from loadgen.analysis.judge import judge
from loadgen.analysis.traffic import at_capacity, unlimited
from loadgen.records import Block, Check, EngineScrape, Experiment, Report, Reuse, Scrape

STAGES = (saturated(lengths(24, (64, 128), (16, 24)), concurrency=8),)
REUSE = Reuse(
    block_tokens=(1, 16, 64),
    ratios=(0.5, 0.4, 0.2),
    capacities_tokens=(1_000, 4_000, 16_000),
    lru_ratios=((0.1, 0.3, 0.5), (0.08, 0.24, 0.4), (0.0, 0.1, 0.2)),
)


def run(**facts: object) -> Experiment:
    arms = tuple(replace_record_arm(arm, facts) for arm in (BF16, FP8))
    return synthetic.experiment(arms, STAGES, repeats=2)


def replace_record_arm(arm: synthetic.Arm, facts: dict[str, object]) -> synthetic.Arm:
    return synthetic.Arm(name=arm.name, kv_dtype=arm.kv_dtype, engine=arm.engine, facts=facts)


def planned(experiment: Experiment, reuse: Reuse) -> Experiment:
    """The same run of a plan whose prompts begin alike."""
    blocks = []
    for block in experiment.blocks:
        stages = tuple(replace_record(spec, reuse=reuse) for spec in block.manifest.stages)
        blocks.append(replace_record(block, manifest=replace_record(block.manifest, stages=stages)))
    return replace_record(experiment, blocks=tuple(blocks))


def hitting(block: Block, ratio: float) -> Block:
    """Counters of a server that found this share of every prompt in its cache."""
    scrapes = []
    for scrape in block.scrapes:
        counted = {"prefix_queries": 100 * scrape.at_s, "prefix_hits": 100 * ratio * scrape.at_s}
        values = {**scrape.engines[0].values, **counted}
        scrapes.append(Scrape(at_s=scrape.at_s, took_s=0.0, engines=(EngineScrape(engine="0", values=values),)))
    return replace_record(block, scrapes=tuple(scrapes))


def check(report: Report, name: str) -> Check:
    return next(one for one in report.traffic if one.name == name)


PROMPTS = "saturated: prompt tokens as planned"
HITS = "saturated: prefix hits within the traffic's reuse"


def test_prompts_as_planned() -> None:
    report = judge(run())
    assert report.traffic == (Check(name=PROMPTS, passed=True, figure="bf16 48 of 48; fp8 48 of 48"),)
    assert not any("prompt tokens" in line for line in report.warnings)


def test_a_prompt_of_another_length_is_told_with_an_example() -> None:
    experiment = run()
    block = experiment.blocks[1]
    samples = tuple(
        replace_record(sample, prompt_tokens=sample.planned_prompt_tokens + 1) if sample.index == 7 else sample
        for sample in block.samples
    )
    report = judge(synthetic.edited(experiment, 1, samples=samples))
    assert check(report, PROMPTS) == Check(name=PROMPTS, passed=False, figure="bf16 48 of 48; fp8 47 of 48")
    wanted = next(sample.planned_prompt_tokens for sample in block.samples if sample.index == 7)
    (line,) = (line for line in report.warnings if "other prompt tokens" in line)
    assert "fp8: the server counted other prompt tokens than planned in 1 of 48 requests, such as request 7: " in line
    assert f"{wanted + 1} for {wanted};" in line


def test_a_server_that_counts_nothing() -> None:
    experiment = run()
    for number, block in enumerate(experiment.blocks):
        samples = tuple(replace_record(sample, prompt_tokens=None) for sample in block.samples)
        experiment = synthetic.edited(experiment, number, samples=samples)
    assert check(judge(experiment), PROMPTS).passed is None


def test_hits_stand_beside_the_theory() -> None:
    experiment = planned(run(prefix_caching=True, block_tokens=16, capacity_tokens=4_000), REUSE)
    for number, block in enumerate(experiment.blocks):
        samples = tuple(
            replace_record(sample, cached_tokens=sample.planned_prompt_tokens // 4) for sample in block.samples
        )
        edited = hitting(replace_record(block, samples=samples), 0.22)
        experiment = synthetic.edited(experiment, number, samples=edited.samples, scrapes=edited.scrapes)
    found = check(judge(experiment), HITS)
    assert found.passed is True
    assert found.figure.startswith("bf16 22 % by its counters and 24.")
    assert "% by its usage (theory 40 % unlimited, 24 % at 4,000 tokens); fp8 22 % by its counters" in found.figure


def test_more_hits_than_the_plan_can_give() -> None:
    experiment = planned(run(prefix_caching=True, block_tokens=16, capacity_tokens=4_000), REUSE)
    block = hitting(experiment.blocks[0], 0.6)
    experiment = synthetic.edited(experiment, 0, scrapes=block.scrapes)
    experiment = synthetic.edited(experiment, 3, scrapes=hitting(experiment.blocks[3], 0.6).scrapes)
    report = judge(experiment)
    assert check(report, HITS).passed is False
    assert "fp8 the server does not tell (theory 40 % unlimited" in check(report, HITS).figure
    assert any(
        "bf16: more prefix hits than the plan can give (60 % by its counters" in line for line in report.warnings
    )


def test_without_a_prefix_cache_there_is_nothing_to_hold_against_it() -> None:
    found = check(judge(planned(run(), REUSE)), HITS)
    assert found.passed is None
    assert "bf16 prefix caching off (theory" in found.figure


@pytest.mark.parametrize(
    ("capacity", "block", "share"),
    [
        (4_000, 1, "30 %"),
        (2_000, 1, "20 %"),
        (2_000, 16, "16 %"),
        (10**6, 64, "20 %"),
        (1, None, "at most 10 %"),
        (round(math.sqrt(4_000 * 16_000)), 1, "40 %"),
    ],
)
def test_the_theory_between_the_points_of_its_curve(capacity: int, block: int | None, share: str) -> None:
    assert at_capacity(REUSE, capacity, block) == share


def test_the_theory_for_a_block_size() -> None:
    assert [unlimited(REUSE, size) for size in (None, 1, 16, 32, 64, 4_096)] == [0.5, 0.5, 0.4, 0.4, 0.2, 0.2]
    assert at_capacity(Reuse(block_tokens=(1,), ratios=(0.5,)), 100, 16) is None
