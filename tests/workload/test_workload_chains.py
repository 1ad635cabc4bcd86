"""What any two prompts of a replay have in common is what their trace says: checked on rendered tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from loadgen.records import StagePlan, Trace, TraceRow, Vocabulary
from loadgen.workload import plan as plans, prompts
from loadgen.workload.model import Scenario
from loadgen.workload.reuse import common_tokens, lru_ratio, reused_ratio

IDS = Vocabulary(kind="token_ids", low=0, high=2**31)  # wide: two tokens that are not the same run's are never equal
BLOCK = 8
HERE = str(Path(__file__))


def built(rows: list[TraceRow], scope: str = "global", **keys: Any) -> StagePlan:
    workload = {"trace": {"path": HERE, **keys}}
    stages = [{"name": "a", "speed": 1}]
    scenario = Scenario.model_validate({"name": "x", "workload": workload, "stages": stages})
    trace = Trace(source="t", format="x", rows=tuple(rows), rows_read=len(rows), block_scope=scope)  # type: ignore[arg-type]
    return plans.build(scenario, trace).stages[0]


def tokens(stage: StagePlan) -> list[list[int]]:
    made = [prompts.render(one, seed=1, salt="s", vocabulary=IDS) for one in stage.requests]
    return [ids for ids in made if isinstance(ids, list)]


def common(one: Sequence[int], other: Sequence[int]) -> int:
    equal = (a == b for a, b in zip(one, other, strict=False))
    return next((place for place, same in enumerate(equal) if not same), min(len(one), len(other)))


@st.composite
def block_rows(draw: st.DrawFn) -> list[TraceRow]:
    """Each row keeps full blocks of an earlier one and goes on with new ids; the last may be partial, or have none."""
    rows: list[TraceRow] = []
    for number in range(draw(st.integers(1, 8))):
        kept: tuple[int, ...] = ()
        if rows:
            model = rows[draw(st.integers(0, len(rows) - 1))]
            kept = model.blocks[: draw(st.integers(0, model.input_tokens // BLOCK))]
        new = draw(st.integers(0 if kept else 1, 4))
        full = len(kept) + new
        rest = draw(st.integers(0, BLOCK - 1))
        ids = (*kept, *(1000 * number + step for step in range(new)))
        if rest and draw(st.booleans()):
            ids = (*ids, 1000 * number + 999)
        session = draw(st.sampled_from([None, "s", "t"]))
        rows.append(
            TraceRow(
                at_s=float(number),
                input_tokens=full * BLOCK + rest,
                output_tokens=1,
                blocks=ids,
                block_tokens=BLOCK,
                session=session,
            )
        )
    return rows


@settings(deadline=None, max_examples=60)
@given(rows=block_rows(), scope=st.sampled_from(["global", "session"]))
def test_prompts_share_the_blocks_that_their_rows_share(rows: list[TraceRow], scope: str) -> None:
    stage = built(rows, scope)
    made = tokens(stage)
    assert [len(ids) for ids in made] == [row.input_tokens for row in rows]
    for place, (row, ids) in enumerate(zip(rows, made, strict=True)):
        for earlier, before in zip(rows[:place], made, strict=False):
            same = common(row.blocks, earlier.blocks)
            if scope == "session" and row.session != earlier.session:
                same = 0
            assert common(ids, before) == min(same * BLOCK, row.input_tokens, earlier.input_tokens)
    check_reuse(stage, made)


def check_reuse(stage: StagePlan, made: list[list[int]]) -> None:
    """The theory from runs is what a look at all tokens finds."""
    seen = [max((common(ids, before) for before in made[:place]), default=0) for place, ids in enumerate(made)]
    assert list(common_tokens(stage.requests)) == seen
    total = sum(map(len, made))
    assert reused_ratio(stage.requests) == sum(seen) / total
    blocks = sum(min(found, len(ids) - 1) // 4 * 4 for found, ids in zip(seen, made, strict=True))
    assert reused_ratio(stage.requests, 4) == blocks / total
    everything = total + sum(one.output_tokens for one in stage.requests)
    assert lru_ratio(stage.requests, everything) == reused_ratio(stage.requests)
    shares = [lru_ratio(stage.requests, capacity) for capacity in (1, 20, 60, everything)]
    assert shares == sorted(shares)


turns = st.lists(st.tuples(st.integers(1, 60), st.one_of(st.none(), st.integers(0, 60))), min_size=1, max_size=7)


@settings(deadline=None, max_examples=60)
@given(sessions=st.lists(turns, min_size=1, max_size=3))
def test_turns_share_with_the_turn_before_what_they_say(sessions: list[list[tuple[int, int | None]]]) -> None:
    rows = [
        TraceRow(at_s=float(turn), input_tokens=length, output_tokens=1, session=str(name), prefix_tokens=prefix)
        for name, session in enumerate(sessions)
        for turn, (length, prefix) in enumerate(session)
    ]
    rows.sort(key=lambda row: row.at_s)
    stage = built(rows, think="none")
    made = tokens(stage)
    assert [len(ids) for ids in made] == [row.input_tokens for row in rows]
    prompt = {(row.session, row.at_s): ids for row, ids in zip(rows, made, strict=True)}
    for name, session in enumerate(sessions):
        for first in range(len(session)):
            shared = session[first][0]
            for later in range(first + 1, len(session)):
                before, (length, prefix) = session[later - 1][0], session[later]
                says = (before if length >= before else 0) if prefix is None else min(prefix, before, length)
                shared = min(shared, says)
                assert common(prompt[str(name), first], prompt[str(name), later]) == shared
    for (one, _), ids in prompt.items():
        assert all(common(ids, others) == 0 for (other, _), others in prompt.items() if other != one)
    check_reuse(stage, made)


def test_a_growing_session_is_one_run() -> None:
    rows = [TraceRow(at_s=float(turn), input_tokens=100 * turn, output_tokens=9, session="a") for turn in range(1, 50)]
    assert [[run.key for run in one.runs] for one in built(rows).requests] == [["s:a:0"]] * 49


def test_a_compaction_begins_anew() -> None:
    lengths = (100, 300, 80, 120)
    rows = [
        TraceRow(at_s=float(turn), input_tokens=length, output_tokens=9, session="a")
        for turn, length in enumerate(lengths)
    ]
    runs = [one.runs for one in built(rows).requests]
    assert [(run.key, run.tokens) for (run,) in runs] == [("s:a:0", 100), ("s:a:0", 300), ("s:a:2", 80), ("s:a:2", 120)]
