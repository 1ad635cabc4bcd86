"""What cannot be right: one file per mistake, and none in what is right."""

import json
import os
from pathlib import Path

import pytest

from loadgen.errors import UserError
from loadgen.traces.findings import Findings
from loadgen.traces.rows import Row
from loadgen.traces.rows_check import Median, lengths
from loadgen.traces.validate import Validation, validate

HEADER = {"loadgen_trace": 1, "source": "x", "format": "x"}
Line = dict[str, object]


def checked(folder: Path, rows: list[Line], **header: object) -> Validation:
    path = folder / "x.jsonl"
    first = HEADER | {"rows_read": len(rows), "rows_kept": len(rows)} | header
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, *rows)))
    return validate([path])


def row(at_s: float, **more: object) -> Line:
    return {"t": at_s, "in": 8, "out": 1} | more


@pytest.mark.parametrize(
    ("rows", "kind", "told"),
    [
        (
            [row(0, id="a"), row(1), row(2, id="a")],
            "ids",
            "row 3: id: 'a': should be of one row alone; row 1 has it",
        ),
        (
            [row(0, session="s", turn=2), row(5, session="s", turn=1)],
            "turns",
            "row 2: turn: 1: should grow with time; row 1 is turn 2, 5 s earlier",
        ),
        (
            [row(0, session="s", turn=1), row(5, session="s", turn=1)],
            "turns",
            "row 2: turn: 1: should be of one row alone; row 1 has it",
        ),
        (
            [row(0, id="a", after=["a"])],
            "parents",
            "row 1: after: 'a': should be another row, not itself",
        ),
        (
            [row(0, after=["b"]), row(4, id="b")],
            "parents",
            "row 1: after: 'b': should be an earlier row; row 2 is 4 s later",
        ),
        (
            [row(0, id="b", after=["a"]), row(0, id="a", after=["b"])],
            "parents",
            "row 1: after: 'a': should be an earlier row; row 2 is 0 s later",
        ),
        (
            [row(0, cached=9)],
            "lengths",
            "row 1: cached: 9: should be at most the 8 input tokens",
        ),
        (
            [row(0, out=2_000_000)],
            "lengths",
            "row 1: out: 2,000,000: should be tokens of one request, at most 1,000,000",
        ),
        (
            [row(0), row(9, session="s", think=86_400_000)],
            "units",
            "row 2: think: 8.64e+07 s: should be seconds, below 30 days; read from ms it would be 86400 s",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_row_and_what_would_be_right(
    tmp_path: Path, rows: list[Line], kind: str, told: str
) -> None:
    found = checked(tmp_path, rows)
    assert found.stopped is None
    assert {one.kind: one.first for one in found.findings.kinds.values() if one.wrong} == {kind: [told]}
    assert found.findings.wrong == 1


@pytest.mark.parametrize(
    ("rows", "kind", "told"),
    [
        ([row(0), row(1, out=0)], "zero tokens", "row 2: out: 0: should be at least 1; the row is dropped"),
        ([row(5), row(2)], "order", "row 2: t: 3 s before a row that stands earlier; it will be sorted"),
        (
            [row(0, after=["gone"])],
            "parents that are not there",
            "row 1: after: 'gone': no row has this id; it counts as ended",
        ),
        (
            [row(0, session="s", turn=3)],
            "parents that are not there",
            "row 1: turn: 3: the first of session 's'; turns before it are missing",
        ),
        (
            [row(0, session="s"), row(1, session="s", **{"in": 5})],
            "contexts that shrink",
            "row 2: 5 input tokens: session 's' had 8 in row 1; its history was cut or condensed",
        ),
    ],
)
def test_what_can_be_right_is_a_note(tmp_path: Path, rows: list[Line], kind: str, told: str) -> None:
    found = checked(tmp_path, rows).findings
    assert found.wrong == 0
    assert {one.kind: one.first for one in found.kinds.values()} == {kind: [told]}


def test_chained_blocks_have_one_predecessor_within_their_scope(tmp_path: Path) -> None:
    rows = [row(0, blocks=[1, 2], session="a"), row(1, blocks=[3, 2], session="b")]
    found = checked(tmp_path, rows, block_tokens=4, block_scope="global").findings
    assert found.kinds["chained blocks"].first == [
        "row 2: block 2 after 3: should be after 1 as in row 1: the same id means the same whole prefix; ids that are "
        "valid within one session need block_scope session"
    ]
    assert not checked(tmp_path, rows, block_tokens=4, block_scope="session").findings.kinds
    twice = checked(tmp_path, [row(0, blocks=[7, 7])], block_tokens=4).findings
    assert twice.kinds["chained blocks"].first[0].startswith("row 1: blocks: an id twice")


def test_blocks_that_do_not_cover_the_prompt() -> None:
    findings = Findings()
    lengths(4, Row(at_ns=0, input_tokens=521, output_tokens=1, blocks=(1, 2, 3)), 512, findings)
    assert findings.kinds["blocks against lengths"].first == [
        "row 4: 3 blocks: should be 2 for 521 input tokens (blocks of 512 tokens)"
    ]


def test_many_of_one_kind_are_three_and_a_count(tmp_path: Path) -> None:
    found = checked(tmp_path, [row(at, cached=9) for at in range(50)]).findings.kinds["lengths"]
    assert (found.count, len(found.first)) == (50, 3)


def test_the_unit_of_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines = (json.dumps({"timestamp": at, "input_length": 5, "output_length": 1}) + "\n" for at in range(200))
    path.write_text("".join(lines))
    assert not validate([path]).findings.wrong
    (line,) = validate([path], time_unit="us").findings.kinds["units"].first
    assert "its times were read as us; should rather be s (1.01/s) or ms (1.01e+03/s)" in line
    assert validate([path], time_unit="us", force_units=True).findings.wrong == 0


def test_units_of_medians(tmp_path: Path) -> None:
    def wrong(*rows: Line) -> list[str]:
        found = checked(tmp_path, [one | {"t": at} for at in range(150) for one in rows]).findings
        return [line for one in found.kinds.values() if one.wrong for line in one.first]

    assert wrong(row(0, think=7.5, dur=2.0, out=100)) == []
    assert wrong(row(0, think=7_500)) == [
        "all rows: think: median 7,943 s: should be seconds; read from ms it would be 7.94 s"
    ]
    assert "ms may have been taken for s" in wrong(row(0, dur=2_000, out=100))[0]
    assert "s may have been taken for ms" in wrong(row(0, dur=0.002, out=100))[0]
    assert "are they characters or bytes?" in wrong(row(0, out=100_000))[0]


def test_one_row_of_another_clock(tmp_path: Path) -> None:
    rows = [row(at) for at in range(200)] + [row(20_000)]
    (line,) = checked(tmp_path, rows).findings.kinds["units"].first
    assert line.startswith("row 201: t: 19,801 s from the row before, of 20,000 s in all")


def test_a_median_in_constant_memory() -> None:
    median = Median()
    for value in range(99):
        median.add(value + 1)
    assert median.value() is None
    for value in range(901):
        median.add(value + 100)
    assert median.value() == pytest.approx(500, rel=0.1)


def test_a_malformed_row_stops_after_what_was_found(tmp_path: Path) -> None:
    found = checked(tmp_path, [row(0, cached=9), row(1, blocks=[1, 2, 3])], block_tokens=4)
    assert found.findings.wrong == 1
    assert found.stopped is not None
    assert found.stopped.endswith("x.jsonl:3: number of blocks: 3: should be 2 for 8 input tokens (blocks of 4 tokens)")
    with pytest.raises(UserError, match="no row to send"):
        checked(tmp_path, [row(0, out=0)])


REAL = pytest.mark.skipif("LOADGEN_TRACES" not in os.environ, reason="LOADGEN_TRACES names no folder of real traces")


@REAL
@pytest.mark.parametrize(
    "name", ["azure-2023/AzureLLMInferenceTrace_conv.csv", "mooncake-fast25/conversation_trace.jsonl"]
)
def test_nothing_is_wrong_in_public_traces(name: str) -> None:
    found = validate([Path(os.environ["LOADGEN_TRACES"], name)])
    assert (found.findings.kinds, found.stopped) == ({}, None)
