"""WEKA's conversations: sub-agents, joins, pauses, ids; every trap of the format."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.trace_files import REAL, both_ways, real, recognised_by, refused, write

from loadgen.errors import UserError
from loadgen.records import Trace, TraceRow
from loadgen.traces.convert import import_trace
from loadgen.traces.read import read_trace


def call(t: float, ids: list[int], out: int = 9, **more: Any) -> dict[str, Any]:
    """A request of 64 tokens per id and ten more, which took two seconds."""
    return {"t": t, "type": "n", "model": "m", "in": 64 * len(ids) + 10, "out": out, "hash_ids": ids} | (
        {"api_time": 2.0, "think_time": 1.0} | more
    )


def agent(t: float, name: str, requests: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "subagent", "agent_id": name, "subagent_type": "Explore", "requests": requests} | more


def talk(requests: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": requests} | more


def file(folder: Path, *talks: dict[str, Any], indent: int | None = None) -> Path:
    return write(folder / "t.json", "\n".join(json.dumps(one, indent=indent) for one in talks))


def by_id(trace: Trace) -> dict[str | None, TraceRow]:
    return {row.id: row for row in trace.rows}


FAMILY = talk(
    [
        call(0.0, [1, 2]),
        agent(3.5, "a", [call(0.0, [7]), call(4.0, [7, 8])]),  # ends at 3.5 + 4 + 2 = 9.5
        agent(
            4.0, "b", [call(0.0, [7]), agent(3.0, "c", [call(0.0, [9], model="h")]), call(16.0, [7, 9])]
        ),  # ends at 22
        call(12.0, [1, 2, 3]),
        call(20.0, [1, 2, 3, 4]),
        call(30.0, [1, 2, 3, 4, 5]),
    ]
)


def test_sub_agents_fan_out_from_a_turn_and_are_joined_when_they_have_ended(tmp_path: Path) -> None:
    trace = both_ways(file(tmp_path, FAMILY))
    rows = by_id(trace)
    assert (trace.format, trace.rows_read, len(rows)) == ("weka", 9, 9)
    assert {row.session for row in trace.rows} == {"x", "x/a", "x/b", "x/b/c"}
    assert {name: row.after for name, row in rows.items() if row.after} == {
        "x/a:1": ("x:1",),
        "x/b:1": ("x:1",),
        "x/b/c:1": ("x/b:1",),
        "x/b:2": ("x/b:1", "x/b/c:1"),
        "x:2": ("x:1", "x/a:2"),
        "x:4": ("x:3", "x/b:2"),
    }
    assert rows["x/b/c:1"].kind == "h"


def test_the_time_of_a_sub_agent_counts_from_its_beginning(tmp_path: Path) -> None:
    rows = by_id(read_trace(file(tmp_path, FAMILY)))
    assert {name: row.at_s for name, row in rows.items()} == {
        "x:1": 0,
        "x/a:1": 3.5,
        "x/b:1": 4,
        "x/b/c:1": 7,
        "x/a:2": 7.5,
        "x:2": 12,
        "x:3": 20,
        "x/b:2": 20,
        "x:4": 30,
    }


def test_a_pause_lasts_from_the_end_of_the_last_one_that_is_waited_for(tmp_path: Path) -> None:
    rows = by_id(read_trace(file(tmp_path, FAMILY)))
    assert {name: row.think_s for name, row in rows.items()} == {
        "x:1": None,
        "x/a:1": 1.5,
        "x/a:2": 2.0,
        "x/b:1": 2.0,
        "x/b/c:1": 1.0,
        "x/b:2": 11.0,
        "x:2": 2.5,
        "x:3": 6.0,
        "x:4": 8.0,
    }
    assert {row.duration_s for row in rows.values()} == {2.0}


def test_a_sub_agent_that_no_turn_joins_is_left_to_itself(tmp_path: Path) -> None:
    alone = talk([agent(1.0, "a", [call(0.0, [1])]), call(2.0, [2]), agent(6.0, "b", [call(0, [3])])])
    rows = by_id(read_trace(file(tmp_path, alone)))
    assert {name: row.after for name, row in rows.items()} == {"x/a:1": (), "x:1": (), "x/b:1": ("x:1",)}


def test_an_agent_that_is_called_again_is_another_session(tmp_path: Path) -> None:
    twice = talk([call(0, [1]), agent(3, "a", [call(0, [2])]), call(9, [1]), agent(12, "a", [call(0, [2])])])
    assert {row.session for row in read_trace(file(tmp_path, twice)).rows} == {"x", "x/a", "x/a~2"}


def test_what_cannot_be_sent_is_followed_by_nobody(tmp_path: Path) -> None:
    failed = talk([call(0, [1]), call(4, [1], out=0), agent(5, "a", [call(0, [2], out=0)]), call(10, [1, 2])])
    trace = both_ways(file(tmp_path, failed))
    assert trace.dropped == {"no output tokens": 2}
    assert [(row.id, row.after, row.think_s) for row in trace.rows] == [("x:1", (), None), ("x:3", (), 8.0)]
    assert trace.notes == ("1 sub-agents have no request to send",)


def test_the_older_form_has_arrivals_alone(tmp_path: Path) -> None:
    old = talk([{"t": t, "type": "s", "model": "m", "in": 70, "out": 5, "hash_ids": [1]} for t in (0.0, 7.25)])
    trace = both_ways(file(tmp_path, old))
    assert [(row.at_s, row.turn, row.think_s, row.duration_s) for row in trace.rows] == [
        (0, 1, None, None),
        (7.25, 2, None, None),
    ]


def test_the_older_forms_sub_agents_end_when_their_marker_says(tmp_path: Path) -> None:
    calls = [call(t, [1], api_time=None, think_time=None) for t in (0, 20, 40)]
    old = talk([calls[0], agent(5, "a", [calls[0]], duration_ms=16_500), calls[1], calls[2]])
    rows = by_id(read_trace(file(tmp_path, old)))
    assert (rows["x:2"].after, rows["x:3"].after) == ((), ("x:2", "x/a:1"))


def test_turns_in_parallel_follow_at_once_and_are_told(tmp_path: Path) -> None:
    trace = read_trace(file(tmp_path, talk([call(0, [1], api_time=9.0), call(3, [1]), call(5.5, [1])])))
    assert [row.think_s for row in trace.rows] == [None, 0.0, 0.5]
    assert trace.notes[0].startswith("1 turns began before the turn before had ended")


def test_ids_of_two_conversations_never_meet_and_those_of_one_do(tmp_path: Path) -> None:
    path = file(tmp_path, talk([call(0, [1, 2]), agent(1, "a", [call(0, [1])])], "x"), talk([call(0, [1, 2])], "y"))
    rows = by_id(both_ways(path))
    assert rows["x/a:1"].blocks == rows["x:1"].blocks[:1]
    assert not set(rows["x:1"].blocks) & set(rows["y:1"].blocks)
    together = file(
        tmp_path, *(talk([call(0, [2**64 + 5, 2**64 + 5 - 2**32])], name, hash_id_scope="global") for name in "xy")
    )
    first, second = read_trace(together).rows
    assert first.blocks == second.blocks
    assert len(set(first.blocks)) == 2


def test_a_partial_last_block_may_have_an_id_or_none(tmp_path: Path) -> None:
    kept, left_out = call(0, [1, 2]) | {"in": 74}, call(5, [1]) | {"in": 74}
    trace = read_trace(file(tmp_path, talk([kept, left_out])))
    assert [len(row.blocks) for row in trace.rows] == [2, 1]
    assert trace.notes == ()


def test_a_prompt_that_is_longer_than_its_ids_goes_on_in_blocks_of_its_own(tmp_path: Path) -> None:
    """The example of the format's own documentation: 25,259 tokens, three ids."""
    trace = both_ways(
        file(tmp_path, talk([call(0, [1, 2, 3]) | {"in": 25_259}, call(5, [1, 2, 3, 4]) | {"in": 25_300}]))
    )
    first, second = trace.rows
    assert (len(first.blocks), len(second.blocks)) == (394, 395)
    assert first.blocks[:3] == second.blocks[:3]
    assert not set(first.blocks[3:]) & set(second.blocks[3:])
    assert trace.notes == ("2 requests have fewer hash_ids than blocks: the rest of their prompts is shared with none",)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_conversation_on_one_line_or_on_many(tmp_path: Path, indent: int | None) -> None:
    path = file(tmp_path, FAMILY, indent=indent)
    assert recognised_by(path) == ["weka"]
    assert read_trace(path).rows_read == 9


def test_a_folder_of_conversations_with_other_files_in_it(tmp_path: Path) -> None:
    write(tmp_path / "d" / "NOTICE", "where they come from")
    for name in ("b", "a"):
        write(tmp_path / "d" / f"{name}.json", json.dumps(talk([call(0, [1]), call(5, [1])], name)))
    trace = read_trace(tmp_path / "d")
    assert [row.session for row in trace.rows] == ["a", "b", "a", "b"]
    assert trace.notes[0].startswith("each of the 2 conversations has a clock of its own: all start at 0 s")
    write(tmp_path / "d" / "c.json", json.dumps(talk([call(0, [1])], "a")))
    with pytest.raises(UserError, match=r"c.json:1: id: 'a': should be of one conversation alone; .*a.json has it too"):
        read_trace(tmp_path / "d")


def test_many_conversations_may_start_one_after_the_other(tmp_path: Path) -> None:
    path = file(tmp_path, *(talk([call(0, [1]), call(9e6, [1])], f"x{number}") for number in range(200)))
    assert read_trace(path).rows[199].at_s == 0  # all at once: a rate of starts that nobody can judge
    spread = {"starts_per_s": "0.5", "seed": "3"}
    starts = [row.at_s for row in both_ways(path, spread).rows[:200]]
    assert starts[0] == 0
    assert 300 < starts[-1] < 500
    assert starts == [row.at_s for row in read_trace(path, options=spread).rows[:200]]
    assert starts != [row.at_s for row in read_trace(path, options=spread | {"seed": "4"}).rows[:200]]
    assert refused(path, {"starts_per_s": "0"}) == "--option starts_per_s: '0': should be a number above 0"
    assert refused(path, {"seed": "-1"}) == "--option seed: '-1': should be a whole number, 0 or more"


def nested(levels: int) -> dict[str, Any]:
    requests = [call(0, [1])]
    for level in range(levels):
        requests = [agent(1, f"a{level}", requests)]
    return talk(requests)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            talk([call(0, [1, 2]) | {"in": 20}]),
            "FILE:1: number of requests[0].hash_ids: 2: should be at most 1 for in 20",
        ),
        (talk([call(0, [1]), call(-3, [1])]), "FILE:1: requests[1].t: -3: should be seconds, 0 or more"),
        (talk([call(0, [1]) | {"t": "0.0"}]), "FILE:1: requests[0].t: '0.0': should be seconds"),
        (talk([call(0, [1]) | {"in": 74.5}]), "FILE:1: requests[0].in: 74.5: should be a whole number of tokens"),
        (talk([call(0, [1], out=None)]), "FILE:1: requests[0].out: None: should be a whole number"),
        (talk([call(0, [1], api_time=-1)]), "FILE:1: requests[0].api_time: -1: should be seconds"),
        (talk([call(0, [1]) | {"type": "z"}]), "FILE:1: requests[0]: {'t': 0"),
        (talk([call(0, [1]), agent(1, "a", [call(0, ["b"])])]), "FILE:1: requests[1].requests[0].hash_ids: ['b']: sh"),
        (talk([call(0, [1]), agent(1, "a", [call(0, [1])]) | {"requests": {}}]), "FILE:1: requests[1].requests: {}: "),
        (talk([call(0, [1])], block_size=0), "FILE:1: block_size: 0: should be at least 1 token"),
        (talk([call(0, [1])], block_size=None), "FILE:1: block_size: None: should be a whole number"),
        (talk([call(0, [1])], hash_id_scope="file"), "FILE:1: hash_id_scope: 'file': should be local or global"),
        (talk([call(0, [1])]) | {"id": None}, "FILE:1: id: missing"),
        (nested(17), "FILE:1: requests[0].requests[0]"),
    ],
)
def test_a_malformed_conversation(tmp_path: Path, value: dict[str, Any], told: str) -> None:
    assert refused(file(tmp_path, value)).startswith(told)


def test_conversations_that_do_not_agree(tmp_path: Path) -> None:
    one = talk([call(0, [1])], "x")
    other = file(tmp_path, one, talk([call(0, [])], "y", block_size=16))
    assert refused(other) == "FILE: block_tokens: 64 and 16: should be one for the whole trace"
    other = file(tmp_path, one, talk([call(0, [1])], "y", hash_id_scope="global"))
    assert refused(other) == "FILE:2: hash_id_scope: 'global': should be local, as in the conversations before"


def test_files_that_hold_no_conversation(tmp_path: Path) -> None:
    path = file(tmp_path, FAMILY)
    path.write_text(path.read_text()[:-20])
    assert refused(path).startswith("FILE: not JSON: ")
    assert (
        refused(write(tmp_path / "list.json", "[\n]"), format="weka") == "FILE: should be a JSON object, a conversation"
    )
    write(tmp_path / "d" / "NOTICE", "nothing else")
    assert refused(tmp_path / "d", format="weka") == "FILE: a folder without JSON files; should hold conversations"


def test_text_is_never_kept(tmp_path: Path) -> None:
    chatty = talk([call(0, [1], stop="end_turn", text="a secret of theirs"), agent(1, "a", [], description="a secret")])
    import_trace([file(tmp_path, chatty)], tmp_path / "out")
    assert "secret" not in (tmp_path / "out").read_text()


@REAL
def test_a_real_conversation_has_the_totals_that_it_states() -> None:
    path = real("kv-cache-tester-claude-code/trace_0291.json")
    trace, stated = read_trace(path), json.loads(path.read_text())["totals"]
    assert sum(row.input_tokens for row in trace.rows) == stated["combined_tokens"]["input"]
    assert sum(row.output_tokens for row in trace.rows) == stated["combined_tokens"]["output"]
    assert len({row.session for row in trace.rows}) == 1 + stated["subagent_count"]
    joins = {row.id: row.after for row in trace.rows if len(row.after) > 1}
    assert joins == {
        "trace_0291:17": ("trace_0291:16", "trace_0291/agent_001:5"),
        "trace_0291:18": ("trace_0291:17", "trace_0291/agent_002:7"),
    }
    thinks = [row.think_s for row in trace.rows if row.session == "trace_0291" and len(row.after) < 2]
    assert thinks[:4] == [None, 8.98, 87.69, 4.9]


@REAL
def test_real_conversations_share_most_of_their_prompts() -> None:
    trace = read_trace(real("kv-cache-tester-claude-code"))
    assert trace.dropped == {}
    known: set[int] = set()
    shared = 0
    for row in trace.rows:
        first_new = next((place for place, block in enumerate(row.blocks) if block not in known), len(row.blocks))
        shared += first_new * 64
        known.update(row.blocks)
    assert 0.90 < shared / sum(row.input_tokens for row in trace.rows) < 0.98
