"""Sessions, families, mixes and grids: what the keys say becomes requests, and wrong keys are told."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from loadgen.errors import UserError
from loadgen.records import Plan, StagePlan, Vocabulary, sessions
from loadgen.workload import arrivals, plan as plans, prompts, scenario
from loadgen.workload.contents import apportioned
from loadgen.workload.seeding import generator

IDS = Vocabulary(kind="token_ids", low=0, high=2**31)

SESSIONS = """
name: x
seed: 3
workload:
  sessions:
    turns: {range: [2, 6]}
    first_tokens: {range: [60, 90]}
    append_tokens: {range: [5, 40]}
    think: {quantiles: {50: 2, 100: 20}}
    think_cap: 10
    compact_at: 150
    compact_to: 70
  output_tokens: {range: [3, 9]}
  shared_prefix: {tokens: 50, groups: 2}
stages:
  - {name: one, concurrency: 1, requests: 4, input_tokens: 30, shared_prefix: null}
  - {name: closed, concurrency: 4, requests: 80}
  - {name: open, rate: 2, requests: 40}
"""
MIX = """
name: x
workload:
  mix:
    - {name: a, share: 60, input_tokens: 100, output_tokens: 5}
    - {name: b, share: 40, output_tokens: 5, sessions: {turns: 4, first_tokens: 50, append_tokens: 10}}
stages:
  - {name: s, concurrency: 4, requests: 100}
  - {name: o, rate: 5, duration: 10s}
"""


def planned(text: str) -> Plan:
    return plans.build(scenario.parse(text, Path("s.yaml")))


def tokens(stage: StagePlan) -> list[list[int]]:
    made = [prompts.render(one, seed=1, salt="s", vocabulary=IDS) for one in stage.requests]
    return [ids for ids in made if isinstance(ids, list)]


def common(one: list[int], other: list[int]) -> int:
    equal = (a == b for a, b in zip(one, other, strict=False))
    return next((place for place, same in enumerate(equal) if not same), min(len(one), len(other)))


def test_each_turns_prompt_goes_on_where_the_one_before_ended_or_is_compacted() -> None:
    stage = planned(SESSIONS).stages[1]
    ids = tokens(stage)
    compacted = 0
    for session in sessions(stage.requests):
        assert session[0].after is None
        for one, later in pairwise(session):
            assert later.after == (one.index,)
            assert 0 < later.think_s <= 10
            if later.prompt_tokens > one.prompt_tokens:
                assert 5 <= later.prompt_tokens - one.prompt_tokens <= 40
                assert common(ids[one.index], ids[later.index]) == one.prompt_tokens
            else:
                compacted += 1
                assert later.prompt_tokens == 70
                assert common(ids[one.index], ids[later.index]) == 50, "the shared prefix stays"
    assert compacted > 5
    assert max(one.prompt_tokens for one in stage.requests) <= 150
    assert sum("compacted" in note for note in planned(SESSIONS).notes) == 2


def test_sessions_of_two_groups_share_their_prefix_and_no_more() -> None:
    stage = planned(SESSIONS).stages[1]
    ids = tokens(stage)
    firsts = [session[0].index for session in sessions(stage.requests)]
    shared = {common(ids[a], ids[b]) for place, a in enumerate(firsts) for b in firsts[:place]}
    assert shared == {0, 50}


def test_stages_of_sessions() -> None:
    plan = planned(SESSIONS)
    one, closed, opened = plan.stages
    assert (one.spec.sessions, one.spec.planned, one.spec.role) == (None, 4, "one_stream")
    assert closed.spec.sessions == 20
    assert 60 <= closed.spec.planned <= 100
    starts = [request.due_s for request in opened.requests if request.after is None]
    assert starts == sorted(starts)
    assert starts[-1] < len(starts) / 2
    assert all(request.due_s is None for request in opened.requests if request.after)
    assert planned(SESSIONS) == plan
    assert planned(SESSIONS.replace("seed: 3", "seed: 4")).digest != plan.digest


def test_a_mix_is_apportioned_by_requests() -> None:
    closed, opened = planned(MIX).stages
    kinds = Counter("a" if one.runs[0].key.startswith("u:") else "b" for one in closed.requests)
    assert kinds == {"a": 60, "b": 40}
    assert closed.spec.sessions == 70
    starts = sum(one.after is None for one in opened.requests)
    assert starts == 50
    order = [one.runs[0].key.startswith("u:") for one in closed.requests if one.after is None]
    assert order != sorted(order), "classes come mixed"


def test_families_share_a_part_of_their_shortest_prompt() -> None:
    text = (
        "name: x\nworkload: {input_tokens: {range: [100, 400]}, output_tokens: 2, shared_prefix: {tokens: 20},\n"
        "  families: {size: {range: [1, 4]}, shared: 0.8}}\n"
        "stages:\n  - {name: s, concurrency: 2, requests: 60}\n"
        "  - {name: own, concurrency: 1, requests: 6, input_tokens: 50}\n"
    )
    stage, own = planned(text).stages
    ids = tokens(stage)
    families: dict[str, list[int]] = {}
    for one in stage.requests:
        families.setdefault(next((run.key for run in one.runs if run.key.startswith("s:")), f"{one.index}"), []).append(
            one.index
        )
    assert Counter(len(members) for members in families.values()).keys() == {1, 2, 3, 4}
    for members in families.values():
        shortest = min(len(ids[index]) for index in members)
        for a, b in pairwise(members):
            assert common(ids[a], ids[b]) == 20 + int((shortest - 20) * 0.8)
    assert all(len(one.runs) == 2 for one in own.requests), "prompts of a stage's own length have no family"


def test_zipf_shares_do_not_depend_on_the_seed() -> None:
    text = (
        "name: x\nseed: {seed}\nworkload: {{input_tokens: 90, output_tokens: 2, "
        "shared_prefix: {{tokens: 9, groups: 3, zipf: 1}}}}\nstages: [{{name: s, concurrency: 1, requests: 110}}]\n"
    )
    orders = []
    for seed in (1, 2):
        keys = [one.runs[0].key for one in planned(text.format(seed=seed)).stages[0].requests]
        assert Counter(keys) == {"p:0": 60, "p:1": 30, "p:2": 20}
        orders.append(keys)
    assert orders[0] != orders[1]


def test_apportioned_sums_up() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        shares, count = rng.random(7) + 0.01, int(rng.integers(0, 40))
        found = apportioned(shares, count)
        assert found.sum() == count
        assert np.abs(found - shares / shares.sum() * count).max() < 1


def test_silences_leave_the_rate_as_it_is() -> None:
    due = arrivals.bursts(2_000, rate_per_s=4, cv=1, active_s=5, silent_s=15, rng=generator(1, "x"))
    assert due == sorted(due)
    assert due[0] == 0
    assert due[-1] < 500
    gaps = np.diff(due)
    assert gaps[gaps > 2].sum() == pytest.approx(0.75 * 500, rel=0.1)
    assert len(gaps[gaps < 2]) / gaps[gaps < 2].sum() == pytest.approx(16, rel=0.1)


GRID = """
name: x
workload: {max_input_tokens: 900}
grid: {contexts: [100, 400, 900, 2000], concurrency: [1, 8], output_tokens: 6, max_tokens: 5000}
"""


def test_a_grid_is_a_stage_for_each_cell_within_its_bounds() -> None:
    plan = planned(GRID)
    assert [stage.spec.name for stage in plan.stages] == ["100x1", "400x1", "900x1", "100x8", "400x8"]
    for stage in plan.stages:
        spec = stage.spec
        assert {one.prompt_tokens for one in stage.requests} == {spec.context_tokens}
        assert {one.output_tokens for one in stage.requests} == {6}
        assert (spec.planned, spec.warmup) == (3 * (spec.concurrency or 0), 1)
        assert spec.reuse is None
    assert plan.notes == (
        "grid: 3 of 8 cells are left out: prompts above 900 tokens or more than 5,000 prompt tokens in flight",
    )


@pytest.mark.parametrize(
    ("text", "old", "new", "told"),
    [
        (SESSIONS, "  output_tokens", "  input_tokens: 5\n  output_tokens", "input_tokens: 5: should be left out"),
        (SESSIONS, "think_cap: 10", "thnk_cap: 10", "workload.sessions.thnk_cap: unknown key; did you mean think_cap?"),
        (SESSIONS, "{50: 2, 100: 20}", "{50: 30, 100: 20}", "should not fall: quantile 50 is 30 s"),
        (SESSIONS, "{quantiles: {50: 2, 100: 20}}", "soon", "workload.sessions.think: \"soon\": should be a time"),
        (SESSIONS, "  output_tokens: {range: [3, 9]}\n", "", "output_tokens: missing; should be given"),
        (SESSIONS, "requests: 80}", "requests: 80, output_tokens: 4}", "output_tokens: 4: should stand beside"),
        (SESSIONS, "requests: 40}", "requests: 2e6}", "stages[2].requests: 2000000.0: should be at most 1000000"),
        (MIX, "name: b", "name: a", "workload.mix[1].name: \"a\": should be unique"),
        (MIX, "share: 60, input_tokens: 100", "share: 60", "workload.mix[0].input_tokens: missing; should be given"),
        (MIX, "  mix:", "  input_tokens: 4\n  mix:", "workload.input_tokens: 4: should be left out: each class"),
        (MIX, "share: 60", "shre: 60", "workload.mix[0].shre: unknown key; did you mean share?"),
        (MIX, "requests: 100}", "requests: 9, shared_prefix: {tokens: 3}}", "shared_prefix: should be left out"),
        (MIX, "concurrency: 4,", "concurrency: 4, bursts: {active: 1, silent: 2},", "bursts: should stand beside"),
        (GRID, "[100, 400, 900, 2000]", "[400, 100]", "grid.contexts: should rise"),
        (GRID, "max_tokens: 5000", "waves: 2", "grid.waves: 2: should be at least 3"),
        (GRID, "max_tokens: 5000", "max_tokens: 50", "grid: should have a cell within max_tokens"),
        (GRID, "grid:", "stages: [{name: 100x8, rate: 1, requests: 1, input_tokens: 4, output_tokens: 4}]\ngrid:",
         "stages[0].name: \"100x8\": should not be that of a cell"),
        (GRID, "grid: {contexts: [100, 400, 900, 2000], concurrency: [1, 8], output_tokens: 6, max_tokens: 5000}\n", "",
         "stages: missing; required (sent one after the other), or a grid"),
    ],
)  # fmt: skip
def test_wrong_keys_are_told(text: str, old: str, new: str, told: str) -> None:
    assert old in text
    with pytest.raises(UserError) as caught:
        planned(text.replace(old, new, 1))
    assert any(told in line for line in str(caught.value).splitlines()), str(caught.value)


def test_too_many_requests_in_sessions_are_refused() -> None:
    with pytest.raises(UserError, match=r"stages\[2\] \(open\): about [\d,]+ requests; should be at most 1,000,000"):
        planned(SESSIONS.replace("requests: 40}", "duration: 300h}"))
