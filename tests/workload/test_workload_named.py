"""Each named scenario sends what its file says: quantiles, shared prefixes, turns, bursts, longest requests."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from loadgen.records import Plan, Request, StagePlan, sessions
from loadgen.workload import plan as plans, scenario
from loadgen.workload.model import Scenario
from loadgen.workload.reuse import reused_ratio

FOLDER = Path(__file__).parents[2] / "scenarios"

# percent -> tokens, as the sources were measured (each file names its own)
INPUTS: dict[str, dict[int, int]] = {
    "chat-short": {10: 207, 50: 1020, 90: 2735, 99: 4142},
    "code-completion": {10: 147, 50: 1469, 90: 5188, 99: 7436},
    "long-chat": {10: 964, 50: 6909, 90: 27367, 99: 85400},
    "rag-longdoc": {10: 30, 50: 11587, 90: 38611, 99: 66456},
    "reasoning": {10: 18, 50: 208, 90: 2092, 99: 23423},
    "batch-summary": {10: 1242, 50: 2730, 90: 3702, 99: 3933},
    "batch-score": {10: 700, 50: 706, 90: 714, 99: 718},
}
OUTPUTS: dict[str, dict[int, int]] = {
    "chat-short": {10: 54, 50: 129, 90: 424, 99: 601},
    "code-completion": {10: 7, 50: 13, 90: 55, 99: 251},
    "long-chat": {10: 24, 50: 350, 90: 597, 99: 1119},
    "rag-longdoc": {10: 4, 50: 69, 90: 389, 99: 768},
    "reasoning": {10: 287, 50: 792, 90: 3432, 99: 12607},
    "batch-summary": {10: 78, 50: 167, 90: 372},
    "agent-coding": {10: 105, 50: 216, 90: 898, 99: 3686},
    "agent-coding-32k": {10: 100, 50: 216, 90: 900},
}


def shipped(name: str) -> Plan:
    return plans.build(scenario.load(FOLDER / f"{name}.yaml"))


def read(name: str) -> dict[str, Any]:
    keys: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return keys


@cache
def large(name: str, requests: int = 4_000, seed: int = 5, **bounds: int | None) -> StagePlan:
    """The scenario's traffic in one stage of many requests, without its bounds."""
    keys = read(name)
    work = {key: value for key, value in keys["workload"].items() if not key.startswith("max_")} | bounds
    stage = {"name": "s", "concurrency": 8, "requests": requests, "warmup": 0}
    made = Scenario.model_validate({"name": name, "seed": seed, "workload": work, "stages": [stage]})
    return plans.build(made).stages[0]


def check(values: Sequence[float], table: dict[int, int], within: float = 0.03) -> None:
    found = np.percentile(values, list(table), method="inverted_cdf")
    assert dict(zip(table, found.tolist(), strict=True)) == pytest.approx(table, rel=within, abs=1)


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_have_their_sources_quantiles(name: str) -> None:
    check([one.prompt_tokens for one in large(name).requests], INPUTS[name])


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_have_their_sources_quantiles(name: str) -> None:
    check([one.output_tokens for one in large(name).requests], OUTPUTS[name])


def test_the_means_of_tool_agent_are_those_of_the_paper() -> None:
    requests = large("tool-agent").requests
    assert np.mean([one.prompt_tokens for one in requests]) == pytest.approx(8596, rel=0.01)
    assert np.mean([one.output_tokens for one in requests]) == pytest.approx(182, rel=0.02)


@pytest.mark.parametrize(
    ("name", "share", "within"),
    [("long-chat", 0.374, 0.04), ("rag-longdoc", 0.651, 0.02), ("tool-agent", 0.59, 0.01), ("chat-short", 0.0, 0.0)],
)
def test_the_share_of_repeated_prompt_tokens_is_what_the_file_claims(name: str, share: float, within: float) -> None:
    for seed in (5, 6):
        reuse = large(name, seed=seed).spec.reuse
        assert (reuse.ratios[0] if reuse is not None else 0.0) == pytest.approx(share, abs=within)


@pytest.mark.parametrize("name", ["agent-coding", "agent-coding-32k"])
def test_agents_repeat_nearly_all_of_their_prompts(name: str) -> None:
    for stage in shipped(name).stages[1:]:
        assert stage.spec.reuse is not None
        assert reused_ratio(stage.requests) == pytest.approx(0.955, abs=0.015)  # were all sent; time ends some


def test_an_agents_session_is_as_measured() -> None:
    found = sessions(large("agent-coding", requests=10_000).requests)
    check([len(one) for one in found], {10: 7, 50: 45, 90: 155}, within=0.08)
    check([one[0].prompt_tokens for one in found], {10: 15_500, 50: 24_500, 90: 259_000}, within=0.08)
    steps = [later.prompt_tokens - one.prompt_tokens for session in found for one, later in pairwise(session)]
    check(steps, {10: 231, 50: 713, 90: 4_179}, within=0.05)
    thoughts = [one.think_s for session in found for one in session[1:]]
    check(thoughts, {10: 4, 50: 10, 90: 60}, within=0.05)
    assert max(thoughts) == 60
    assert {one[0].runs[0] for one in found} == {found[0][0].runs[0]}, "tools and system prompt are everyone's"
    assert found[0][0].runs[0].tokens == 14_300


def test_a_compacted_agent_stays_below_its_bound() -> None:
    stage = shipped("agent-coding-32k").stages[1]
    falls = [
        (one.prompt_tokens, later.prompt_tokens)
        for session in sessions(stage.requests)
        for one, later in pairwise(session)
        if later.prompt_tokens < one.prompt_tokens
    ]
    assert len(falls) > 50
    assert {after for _, after in falls} == {6_000}
    assert max(one.prompt_tokens for one in stage.requests) <= 28_000


def test_tenants_and_classes_have_their_shares() -> None:
    requests = large("mixed-tenant", requests=6_000).requests
    kinds = Counter(_kind(one) for one in requests)
    total = sum(kinds.values())
    assert kinds["chat"] / total == pytest.approx(0.7, abs=0.02)
    assert kinds["agents"] / total == pytest.approx(0.1, abs=0.02)
    tenants = Counter(one.runs[0].key for one in requests if one.runs[0].key.startswith("p:chat:"))
    top = [count for _, count in tenants.most_common(10)]
    assert top[0] / sum(tenants.values()) == pytest.approx(0.286, abs=0.01)
    assert sum(top) / sum(tenants.values()) == pytest.approx(0.677, abs=0.04)
    assert len({run.key for one in requests for run in one.runs if run.key.startswith("p:agents:")}) > 20


def _kind(request: Request) -> str:
    first = request.runs[0].key
    return first.split(":")[1] if first.startswith("p:") else "documents"


def test_code_comes_in_bursts_as_in_the_trace() -> None:
    keys = read("code-completion")
    stage = next(stage for stage in keys["stages"] if "bursts" in stage) | {"duration": 10 * 3436, "warmup": 0}
    keys["workload"] |= {"input_tokens": 8, "output_tokens": 2}
    due = np.array(
        [one.due_s for one in plans.build(Scenario.model_validate(keys | {"stages": [stage]})).stages[0].requests]
    )
    gaps = np.diff(due)
    bins = np.bincount((due // 10).astype(int))
    assert (bins > 0).mean() == pytest.approx(0.44, abs=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(13.15, rel=0.1)
    assert len(due) / due[-1] == pytest.approx(2.57, rel=0.01)


NEEDS = re.compile(r"max_model_len ([\d,]+)")
LONGEST = re.compile(r"Longest request: ([\d,]+)(?: \+ ([\d,]+))? tokens")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_longest_request_is_what_the_file_says(path: Path) -> None:
    text = " ".join(path.read_text(encoding="utf-8").split())
    if "trace:" in text or "Longest request" not in text:
        return
    said = LONGEST.search(text)
    assert said is not None
    most = sum(int(part.replace(",", "")) for part in said.groups() if part)
    longest = max(
        one.prompt_tokens + one.output_tokens for stage in shipped(path.stem).stages for one in stage.requests
    )
    needed = NEEDS.search(text)
    if needed is not None:
        most = int(needed[1].replace(",", "").rstrip("."))
    assert longest <= most


PAIR = ("prefill-heavy", "decode-heavy")


def test_the_pair_is_the_same_the_other_way_round() -> None:
    one, other = (shipped(name).stages[1] for name in PAIR)
    sums = [
        (sum(r.prompt_tokens for r in stage.requests), sum(r.output_tokens for r in stage.requests))
        for stage in (one, other)
    ]
    assert sums[0][0] == pytest.approx(sums[1][1], rel=0.01)
    assert sums[0][1] == pytest.approx(sums[1][0], rel=0.01)
