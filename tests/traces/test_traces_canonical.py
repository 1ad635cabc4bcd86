"""The canonical file: what is written is what is read, in order, whole, and every row accounted for."""

import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from loadgen.errors import ExperimentError, UserError
from loadgen.traces import sort, write
from loadgen.traces.canonical import VERSION, Header, read_header
from loadgen.traces.frame import Clock
from loadgen.traces.read import read_trace, reading
from loadgen.traces.rows import Row
from loadgen.traces.sort import Sorter
from loadgen.traces.write import write_trace

HEADER = (
    '{"loadgen_trace": 1, "source": "mooncake", "format": "mooncake", "block_tokens": 512, '
    '"rows_read": 3, "rows_kept": 2, "dropped": {"no output tokens": 1}}'
)
ROWS = (
    '{"t": 27.482, "in": 1100, "out": 52, "blocks": [46, 47, 2353]}\n'
    '{"t": 61.114, "in": 521, "out": 132, "id": "b", "session": "55", "turn": 2, "after": "prev", "think": 4.0, '
    '"cached": 480, "class": "text"}\n'
)

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
seconds = st.floats(0, 1e6)
counts = st.integers(0, 10**9 - 1)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    input_tokens = draw(st.integers(1, 4_000))
    ids = st.lists(st.integers(0, 2**80), min_size=-(-input_tokens // 512), max_size=-(-input_tokens // 512))
    return Row(
        at_ns=draw(st.integers(0, 10**15)),  # eleven days
        input_tokens=input_tokens,
        output_tokens=draw(st.integers(1, 10**9 - 1)),
        blocks=tuple(draw(st.one_of(st.just([]), ids))),
        id=draw(st.none() | names),
        session=draw(st.none() | names),
        turn=draw(st.none() | counts),
        after=tuple(draw(st.lists(names, max_size=3))),
        think_s=draw(st.none() | seconds),
        prefix_tokens=draw(st.none() | counts),
        cached_tokens=draw(st.none() | counts),
        kind=draw(st.none() | names),
        duration_s=draw(st.none() | seconds),
    )


def header(count: int) -> Header:
    return Header(
        loadgen_trace=VERSION,
        source="s",
        format="f",
        rows_read=count,
        rows_kept=count,
        block_tokens=512,
        block_scope="session",
    )


def at(row: Row, at_ns: int) -> Row:
    values = {name: getattr(row, name) for name in Row.__struct_fields__}
    return Row(**{**values, "at_ns": at_ns})


@settings(max_examples=60, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=12))
def test_what_is_written_is_what_is_read(given: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        write_trace(given, path, lambda clock: header(len(given)))
        account, read = reading([path])
        first_ns = min(row.at_ns for row in given)
        expected = [at(row, row.at_ns - first_ns) for row in sorted(given, key=lambda row: row.at_ns)]
        assert list(read) == expected
        assert (account.rows_read, account.rows_kept, account.disorder) == (len(given), len(given), 0)
        assert (account.block_tokens, account.block_scope) == (512, "session")
        again = Path(folder) / "again.jsonl"
        write_trace(expected, again, lambda clock: header(len(given)))
        assert again.read_bytes() == path.read_bytes()


@given(st.lists(st.integers(0, 50), max_size=400), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_lines_are_sorted_outside_of_memory_and_stably(instants: list[int], most_lines: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sorter = Sorter(Path(folder), most_lines)
        for number, instant in enumerate(instants):
            sorter.add(instant, b"%d\n" % number)
        lines = [(instant, b"%d\n" % number) for number, instant in enumerate(instants)]
        assert list(sorter.merged()) == sorted(lines, key=lambda line: line[0])


def test_many_runs_are_merged_before_there_are_too_many_open_files(tmp_path: Path) -> None:
    sorter = Sorter(tmp_path, 1)
    backwards = range(3 * sort.MOST_RUNS, 0, -1)
    for number in backwards:
        sorter.add(number, b"%d\n" % number)
        assert len(list(tmp_path.iterdir())) <= sort.MOST_RUNS
    assert [at_ns for at_ns, _ in sorter.merged()] == sorted(backwards)


def test_the_published_example_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(f"{HEADER}\n{ROWS}")
    trace = read_trace(path)
    assert (trace.format, trace.rows_read, trace.dropped) == ("canonical", 2, {})
    assert trace.notes == ("1 of 3 rows were dropped when it was made from mooncake: 1 no output tokens",)
    first, second = trace.rows
    assert (first.at_s, first.blocks, first.block_tokens) == (0, (46, 47, 2353), 512)
    assert (second.session, second.turn, second.after, second.think_s) == ("55", 2, (), 4.0)
    assert (second.at_s, second.cached_tokens, second.kind) == (33.632, 480, "text")
    assert read_header(path).rows_read == 3


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"loadgen_trace": 1', '"loadgen_trace": 2', "FILE:1: loadgen_trace: 2: should be 1, the version"),
        ('"rows_read": 3', '"rows_read": 4', "FILE:1: rows_read: 4: should be rows_kept and all dropped together"),
        ('"rows_read": 3', '"rows_read": "3"', "FILE:1: header: Expected `int`, got `str`"),
        ('"block_tokens": 512', '"block_tokens": 0', "FILE:1: block_tokens: 0: should be at least 1"),
        ('"block_tokens": 512, ', "", "FILE:2: blocks: [46, 47, 2353]: should be left out, or the header"),
        (ROWS.splitlines()[1] + "\n", "", "FILE: 1 rows: should be 2, as its header says"),
        ('"t": 27.482', '"t": "27"', "FILE:2: t: '27': should be seconds"),
        ('"t": 27.482', '"t": -1', "FILE:2: t: -1: should be seconds"),
        ('"in": 521', '"in": 5.5', "FILE:3: in: 5.5: should be a whole number of tokens"),
        ('"in": 521, ', "", "FILE:3: in: missing"),
        ("[46, 47, 2353]", "[46]", "FILE:2: number of blocks: 1: should be 3 for 1100 input tokens"),
        ('"class": "text"', '"prompt": "text"', "FILE:3: prompt: 'text': should be one of after, blocks"),
        ('"class": "text"', f'"class": "{"long " * 50}"', "FILE:3: class: 'long long"),
        ('"session": "55", ', "", "FILE:3: after: 'prev': should be ids of rows; only a row with a session"),
        ('"after": "prev"', '"after": 7', "FILE:3: after: 7: should be a list of ids"),
        ('"think": 4.0', '"think": -4.0', "FILE:3: think: -4.0: should be seconds"),
        ('"turn": 2', '"turn": 2.5', "FILE:3: turn: 2.5: should be a whole number"),
        ('"class": "text"}', '"class": "text"', "FILE:3: '{"),
    ],
)
def test_a_damaged_file(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = f"{HEADER}\n{ROWS}"
    assert old in text
    path = tmp_path / "t"
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_trace(path)
    (line,) = caught.value.complaints
    assert line.replace(str(path), "FILE").startswith(told)


def test_a_header_is_one_line_of_json_and_is_told_the_clock(tmp_path: Path) -> None:
    seen: list[int] = []

    def told(clock: Clock) -> Header:
        seen.append(clock.rows)
        return Header(loadgen_trace=1, source="s", format="f", rows_read=2, rows_kept=2, notes=("x",) * clock.rows)

    written = write_trace([Row(5, 1, 1), Row(3, 2, 2)], tmp_path / "t", told)
    first, *rest = (tmp_path / "t").read_text().splitlines()
    assert seen == [0, 2]
    assert json.loads(first)["notes"] == ["x", "x"] == list(written.notes)
    assert rest == ['{"t":0,"in":2,"out":2}', '{"t":0.000000002,"in":1,"out":1}']


def cut_off() -> Iterator[Row]:
    yield Row(0, 1, 1)
    raise UserError("row 2 is bad")


def test_a_trace_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "t"
    with pytest.raises(UserError, match="row 2 is bad"):
        write_trace(cut_off(), out, lambda clock: header(1))
    assert list(out.parent.iterdir()) == []
    write_trace([Row(0, 1, 1)], out, lambda clock: header(1))
    before = out.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "fsync", full)
    with pytest.raises(ExperimentError, match="t: cannot write: No space left on device"):
        write_trace([Row(0, 9, 9)], out, lambda clock: header(1))
    assert list(out.parent.iterdir()) == [out]
    assert out.read_bytes() == before


def test_a_clock_is_called_coarse_only_when_it_is() -> None:
    def quantum(gaps: list[int]) -> float | None:
        clock = Clock()
        for instant in itertools.accumulate(gaps, initial=7):
            clock.see(instant)
        return clock.quantum_s

    second = 10**9
    assert quantum([0, second, 0, 3 * second] * 40) == 1.0
    assert quantum([0, 0, 0, 3 * second, 0, 0, 3 * second - 10**6, 0, 3 * second + 10**6] * 40) == 3.0
    assert quantum([second + n for n in range(200)]) is None
    assert quantum([0, second] * 20) is None, "too few rows to say"
    assert quantum([second] * 200) is None, "an even load on a clock of any step"
    assert quantum([0, 0, 0, second, 0, 5 * second + 1] * 40) is None
