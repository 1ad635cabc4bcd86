"""Qwen-Bailian's rows: seconds, 16-token blocks, sessions through parents; every trap of the format."""

import json
from pathlib import Path

import pytest
from fakes.trace_files import both_ways, recognised_by, refused, write

from loadgen.traces.read import read_trace

ROWS = """{"chat_id": 55, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 33, "output_length": 200, "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
{"chat_id": 60, "parent_chat_id": 17, "timestamp": 1.25, "input_length": 16, "output_length": 9, "type": "image", "turn": 4, "hash_ids": [9]}
{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 40, "output_length": 132, "type": "text", "turn": 2, "hash_ids": [1, 2, 6326]}
{"chat_id": 160, "parent_chat_id": 159, "timestamp": 70.0, "input_length": 70, "output_length": 5, "type": "text", "turn": 3, "hash_ids": [1, 2, 6326, 7, 8]}
{"chat_id": 161, "parent_chat_id": 159, "timestamp": 71.0, "input_length": 70, "output_length": 5, "type": "text", "turn": 3, "hash_ids": [1, 2, 6326, 7, 10]}
{"chat_id": 162, "parent_chat_id": 161, "timestamp": 80.0, "input_length": 70, "output_length": 5, "type": "text", "turn": 4}
"""  # noqa: E501 - rows as they stand in the files


def test_parents_make_sessions_and_a_second_child_begins_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "t", ROWS)
    assert recognised_by(path) == ["bailian"]
    trace = both_ways(path)
    assert [(row.id, row.session, row.turn, row.after) for row in trace.rows] == [
        ("55", "55", 1, ()),
        ("60", "60", 1, ()),
        ("159", "55", 2, ()),
        ("160", "55", 3, ()),
        ("161", "161", 1, ("159",)),
        ("162", "161", 2, ()),
    ]


def test_an_orphan_is_a_root_and_is_told(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "t", ROWS))
    assert trace.notes == ("1 rows name a parent that is not in the trace before them: kept as roots",)
    assert trace.rows_read == len(trace.rows) == 6


def test_times_are_seconds_and_blocks_of_16_tokens(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "t", ROWS))
    assert [row.at_s for row in trace.rows[:3]] == pytest.approx([0, 0.75, 60.614], abs=1e-9)
    first, image, second, *_ = trace.rows
    assert (first.blocks, first.block_tokens, first.kind, image.kind) == ((1, 2, 3), 16, "text", "image")
    assert second.prefix_tokens is None  # the answer before is not whole in it: the blocks alone tell what is shared
    assert trace.rows[-1].blocks == ()


def test_ids_beyond_64_bits_stay_apart(tmp_path: Path) -> None:
    wide = ROWS.replace("[9]", f"[{2**64 + 9}]").replace("6326", str(2**32 + 9))
    assert both_ways(write(tmp_path / "t", wide)).rows[1].blocks == (2**64 + 9,)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[9]", "[9, 9]", "FILE:2: number of hash_ids: 2: should be 1 for 16 input tokens (blocks of 16 tokens)"),
        ("1.25", '"1.25"', "FILE:2: timestamp: '1.25': should be seconds since the trace's start"),
        ('"chat_id": 60', '"chat_id": 55', "FILE:2: chat_id: 55: should be a whole number, of one row alone"),
        ('"chat_id": 60', '"chat_id": -1', "FILE:2: chat_id: -1: should be a whole number"),
        ('_id": 17', '_id": "17"', "FILE:2: parent_chat_id: '17': should be a chat_id, or -1 for none"),
        (', "output_length": 9', "", "FILE:2: output_length: missing: should be given in every row"),
        ('"image"', f'"{"words " * 40}"', "FILE:2: type: 'words words"),
    ],
)
def test_a_malformed_row(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in ROWS
    assert refused(write(tmp_path / "t", ROWS.replace(old, new))).startswith(told)


def test_a_chat_that_is_its_own_parent_is_an_orphan(tmp_path: Path) -> None:
    row = json.loads(ROWS.splitlines()[0]) | {"parent_chat_id": 55}
    (only,) = read_trace(write(tmp_path / "t", json.dumps(row))).rows
    assert (only.session, only.after) == ("55", ())
