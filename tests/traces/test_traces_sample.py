"""Samples: whole families and sessions, windows, rates; and rows refused where they belong together."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from loadgen.errors import UserError
from loadgen.records import Trace
from loadgen.traces.columns import collected
from loadgen.traces.draw import Cut, drawn, shared_ratio
from loadgen.traces.read import read_trace, reading
from loadgen.traces.reuse import Prefixes
from loadgen.traces.sample import LEFT_OUT, Sampled, sample
from loadgen.traces.ties import Ties, families, joined

Line = dict[str, object]


def write(folder: Path, rows: list[Line], name: str = "x.jsonl", **header: object) -> Path:
    path = folder / name
    first = {"loadgen_trace": 1, "source": "x", "format": "x", "rows_read": len(rows), "rows_kept": len(rows)} | header
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, *rows)))
    return path


def cut(path: Path, **asked: object) -> tuple[Sampled, Trace]:
    out = path.with_name("out.jsonl")
    found = sample([path], out, Cut(**asked))  # type: ignore[arg-type]
    return found, read_trace(out)


def conversations(folder: Path, count: int = 300) -> Path:
    """Families of one to five turns that share a system prompt (block 0), out of order at first."""
    draw, rows, block = random.Random(5), [], 1
    for number in range(count):
        ids = [0]
        for turn in range(draw.randint(1, 5)):
            ids = [*ids, block, block + 1]
            block += 2
            rows.append({"t": number * 3 + turn * 40, "in": 4 * len(ids), "out": 2, "blocks": ids})
    draw.shuffle(rows)
    return write(folder, rows, block_tokens=4)


def test_families_stay_whole_and_keep_their_share(tmp_path: Path) -> None:
    path = conversations(tmp_path)
    whole = read_trace(path)
    found, trace = cut(path, share=0.5, seed=1)
    families_of = {row.blocks[1] for row in trace.rows}
    assert [row.blocks for row in whole.rows if row.blocks[1] in families_of] == [row.blocks for row in trace.rows]
    assert (found.by, found.groups, found.groups_kept) == ("family", 300, 150)
    assert found.header.rows_read == found.header.rows_kept + found.header.dropped[LEFT_OUT] == len(whole.rows)
    assert len(trace.rows) == pytest.approx(len(whole.rows) / 2, rel=0.05)
    assert found.shared_after == pytest.approx(found.shared_before, abs=0.02)
    assert any(note.startswith("a sample: 150 of 300 prefix families, seed 1") for note in trace.notes)


def test_a_seed_is_one_sample_and_another_another(tmp_path: Path) -> None:
    path = conversations(tmp_path, 60)
    rows = [cut(path, count=20, seed=seed)[1].rows for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    assert len(rows[0]) == pytest.approx(20, abs=8)


def test_a_block_that_many_rows_have_is_no_tie() -> None:
    tree = Prefixes()
    for ids in ((0, 1), (0, 1), (0, 2), (4,), (4,), (5,)):
        tree.add(ids)
    stretches = tree.stretches(np.arange(6), np.full(6, 8), 4)
    assert families(np.arange(6), stretches, 1.0).tolist() == [0, 0, 0, 1, 1, 2]
    assert families(np.arange(6), stretches, 34.0).tolist() == [0, 0, 1, 2, 2, 3]  # 34 x 3 rows keep block 0 anyway
    tree.add((0,))
    most = tree.stretches(np.arange(7), np.full(7, 8), 4)
    assert families(np.arange(7), most, 1.0).tolist() == [0, 0, 1, 2, 2, 3, 4]


def test_keys_join_over_others() -> None:
    assert joined(5, np.array([0, 1, 1, 2, 4]), np.array([7, 7, 3, 3, 0])).tolist() == [0, 0, 0, 1, 2]


def test_sessions_and_joins_stay_whole(tmp_path: Path) -> None:
    rows: list[Line] = []
    for number in range(40):
        at = number * 10
        rows += [
            {"t": at, "in": 8, "out": 1, "session": f"s{number}", "id": f"{number}"},
            {"t": at + 1, "in": 8, "out": 1, "session": f"s{number}/sub", "after": [f"{number}"], "id": f"{number}b"},
            {"t": at + 4, "in": 9, "out": 1, "session": f"s{number}", "after": [f"{number}", f"{number}b"]},
        ]
    path = write(tmp_path, rows)
    found, trace = cut(path, share=0.25)
    assert (found.by, found.groups, found.groups_kept, len(trace.rows)) == ("session", 40, 10, 30)
    assert {row.after[0] for row in trace.rows if row.after} <= {row.id for row in trace.rows}
    assert (found.shared_before, found.shared_after) == (None, None)


def test_rows_are_refused_where_they_belong_together(tmp_path: Path) -> None:
    path = conversations(tmp_path)
    with pytest.raises(
        UserError, match=r"50 % of the rows would leave \d\d(\.\d)? % of prompt tokens shared instead"
    ) as told:
        cut(path, share=0.5, by="row")
    assert str(told.value).endswith("should be --by family, or a --window of time")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out.jsonl").exists()
    sessions = write(tmp_path, [{"t": 0, "in": 8, "out": 1, "session": "s"}], "s.jsonl")
    with pytest.raises(UserError, match="single rows torn out of their sessions"):
        cut(sessions, share=0.5, by="row")
    with pytest.raises(UserError, match="--by family: the trace has no prefix blocks; should be session"):
        cut(sessions, share=0.5, by="family")


def test_single_rows_where_nothing_ties_them(tmp_path: Path) -> None:
    path = write(tmp_path, [{"t": at, "in": 8, "out": 1} for at in range(200)])
    found, trace = cut(path, share=0.1)
    assert (found.by, len(trace.rows)) == ("row", 20)
    gaps = np.diff([row.at_s for row in trace.rows])
    assert gaps.min() >= 1  # times as they were
    with pytest.raises(UserError, match="--by session: the trace has no sessions; should be row"):
        cut(path, share=0.1, by="session")


def test_the_rate_is_kept_and_a_sessions_pace_too(tmp_path: Path) -> None:
    rows: list[Line] = []
    for number in range(200):
        rows += [
            {"t": number * 10 + turn * 7, "in": 8, "out": 1, "session": f"s{number}", "turn": turn + 1}
            for turn in range(2)
        ]
    path = write(tmp_path, rows)
    found, trace = cut(path, share=0.2, keep_rate=True)
    starts = [row.at_s for row in trace.rows if row.turn == 1]
    assert (found.scale, len(starts)) == (0.2, 40)
    assert np.diff(starts).mean() == pytest.approx(10, rel=0.1)
    begin = {row.session: row.at_s for row in trace.rows if row.turn == 1}
    assert [row.at_s - begin[row.session] for row in trace.rows if row.turn == 2] == pytest.approx([7] * 40)
    assert found.header.span_s == pytest.approx(trace.rows[-1].at_s)


def test_a_window_takes_whole_sessions_by_their_beginning(tmp_path: Path) -> None:
    rows: list[Line] = [
        {"t": 0, "in": 8, "out": 1, "session": "a"},
        {"t": 10, "in": 8, "out": 1},
        {"t": 12, "in": 8, "out": 1, "session": "a"},
        {"t": 13, "in": 8, "out": 1, "session": "b"},
        {"t": 20, "in": 8, "out": 1},
        {"t": 30, "in": 8, "out": 1, "session": "b"},
    ]
    path = write(tmp_path, rows)
    found, trace = cut(path, window_s=(10.0, 20.0))
    assert [(row.at_s, row.session) for row in trace.rows] == [(0, None), (3, "b"), (20, "b")]
    assert found.header.dropped == {LEFT_OUT: 3}
    with pytest.raises(UserError, match=r"--window 50:60: no request begins there; the trace is 30\.0 s long"):
        cut(path, window_s=(50.0, 60.0))


def test_a_coarse_clock_stays_known_and_moves_with_the_times(tmp_path: Path) -> None:
    rows: list[Line] = [{"t": 3 * (at // 10), "in": 8, "out": 1} for at in range(2_000)]
    path = write(tmp_path, rows, time_quantum_s=3.0)
    assert cut(path, count=20)[1].time_quantum_s == 3.0
    assert cut(path, share=0.1, keep_rate=True)[1].time_quantum_s == pytest.approx(0.3)


REAL = pytest.mark.skipif("LOADGEN_TRACES" not in os.environ, reason="LOADGEN_TRACES names no folder of real traces")


@REAL
def test_mooncake_keeps_its_reuse_by_family_and_loses_it_by_row() -> None:
    path = Path(os.environ["LOADGEN_TRACES"], "mooncake-fast25", "conversation_trace.jsonl")
    account, rows = reading([path])
    ties = Ties()
    columns = collected(ties.seen(rows), account)
    links = ties.links()[columns.order]
    for share, by_row in ((0.5, 0.275), (0.25, 0.204), (0.1, 0.124)):
        found = drawn(columns, links, Cut(share=share))
        assert (found.groups, found.largest_rows) == (7_373, 43)
        assert shared_ratio(columns, found.kept) == pytest.approx(0.3736, abs=0.015)
        alone = np.random.default_rng(0).random(12_031) < share
        assert shared_ratio(columns, alone) == pytest.approx(by_row, abs=0.02)
