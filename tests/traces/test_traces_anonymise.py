"""What may be given away: nothing planted is in it, no two exports can be linked by ids, and it is still the trace."""

import json
import random
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from loadgen.errors import UserError
from loadgen.traces.anonymise import KNOWN, NAMED, Blurred, anonymise, check
from loadgen.traces.blur import Blur
from loadgen.traces.describe import describe
from loadgen.traces.formats import FORMATS
from loadgen.traces.frame import Account
from loadgen.traces.read import read_trace
from loadgen.traces.rows import Row, blocks_fit
from loadgen.traces.validate import validate

SECRETS = (
    "tenant-acme",
    "alice@example.org",
    "gpt-secret-9",
    "/home/alice/model",
    "deadbeef",
    "77001234",
    "2025-03-04",
)
Line = dict[str, object]


def planted(folder: Path, sessions: int = 30, name: str = "acme-prod.jsonl") -> Path:
    """Every place that can hold a name or a date holds one."""
    draw, rows, block = random.Random(1), list[Line](), 77001234
    for number in range(sessions):
        ids = [77001233]
        for turn in range(1, 4):
            ids = [*ids, block]
            block += 1
            rows.append(
                {
                    "t": number * 10 + turn + draw.random() / 2,
                    "in": 16 * len(ids) - draw.randint(0, 15),
                    "out": draw.randint(3, 90),
                    "blocks": ids,
                    "id": f"tenant-acme-{number}-{turn}",
                    "session": f"alice@example.org/{number}",
                    "turn": turn,
                    "after": [f"tenant-acme-{number}-{turn - 1}"] if turn > 1 else [],
                    "think": draw.random() * 9,
                    "cached": 16,
                    "class": "gpt-secret-9" if number % 2 else f"rare-{number}-tenant-acme",
                    "dur": draw.random(),
                }
            )
    header = {
        "loadgen_trace": 1,
        "source": "acme-prod-2025-03-04.jsonl",
        "source_sha256": "deadbeef",
        "format": "generic",
        "rows_read": len(rows) + 1,
        "rows_kept": len(rows),
        "dropped": {"refused for tenant-acme": 1},
        "block_tokens": 16,
        "block_scope": "global",
        "tokenizer": "/home/alice/model",
        "notes": ["from tenant-acme"],
    }
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    return path


def exported(path: Path, out: str = "out.jsonl", **asked: object) -> tuple[str, list[Line]]:
    anonymise([path], path.with_name(out), Blurred(**asked))  # type: ignore[arg-type]
    text = path.with_name(out).read_text()
    return text, [json.loads(line) for line in text.splitlines()[1:]]


@pytest.mark.parametrize("asked", [{}, {"round_tokens": 16, "jitter_s": 5.0}, {"kinds": "drop"}])
def test_no_secret_is_found(tmp_path: Path, asked: dict[str, object]) -> None:
    text, _ = exported(planted(tmp_path), **asked)
    for secret in (*SECRETS, "acme", "alice", "secret", "rare"):
        assert secret not in text
    assert "77001" not in re.sub(r"\.\d+", "", text)  # a jitter's own fraction may hold any digits
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text.split("\n", 1)[1])
    allowed = {"t", "in", "out", "blocks", "id", "session", "turn", "after", "think", "cached", "class", "dur", "other"}
    assert {one for one in strings if not one.isdecimal()} <= allowed


def test_classes_are_kept_where_asked_but_never_rare_ones(tmp_path: Path) -> None:
    path = planted(tmp_path)
    text, rows = exported(path, kinds="keep")
    assert {row["class"] for row in rows} == {"gpt-secret-9", "other"}
    assert "rare" not in text
    assert {row.get("class") for row in exported(path, k=31)[1]} == {
        None
    }  # 30 sessions are too few, all classes together
    few = planted(tmp_path, 8, "few.jsonl")  # 4 sessions have the common class, 4 others rare ones
    assert {row.get("class") for row in exported(few, kinds="keep", k=4)[1]} == {"gpt-secret-9", "other"}
    assert {row.get("class") for row in exported(few, kinds="keep", k=5)[1]} == {"other"}
    assert {row.get("class") for row in exported(few, kinds="keep", k=9)[1]} == {None}


def test_two_exports_cannot_be_linked_by_ids(tmp_path: Path) -> None:
    path = planted(tmp_path, 60)
    one, two = exported(path, "1.jsonl")[1], exported(path, "2.jsonl")[1]
    for key in ("session", "id"):
        same = [a[key] == b[key] for a, b in zip(one, two, strict=True) if key in a]
        assert sum(same) < len(same) / 4
    pairs = [(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x["blocks"], y["blocks"], strict=True)]  # type: ignore[call-overload]
    assert sum(a == b for a, b in pairs) < len(pairs) / 4
    by_appearance = list(dict.fromkeys(str(row["session"]) for row in one))
    assert by_appearance != sorted(by_appearance, key=int)  # the order of the numbers tells nothing either
    assert {int(name) for name in by_appearance} == set(range(1, 61))


def test_what_is_equal_stays_equal(tmp_path: Path) -> None:
    path = planted(tmp_path)
    anonymise([path], tmp_path / "out.jsonl", Blurred())
    before, after = read_trace(path), read_trace(tmp_path / "out.jsonl")
    for name in ("at_s", "input_tokens", "output_tokens", "turn", "think_s", "cached_tokens", "duration_s"):
        assert [getattr(row, name) for row in after.rows] == [getattr(row, name) for row in before.rows]
    sessions = dict(zip((row.session for row in before.rows), (row.session for row in after.rows), strict=True))
    assert [sessions[row.session] for row in before.rows] == [row.session for row in after.rows]
    one, two = (describe([place])[0].reuse for place in (path, tmp_path / "out.jsonl"))
    assert one == two
    ids = {row.id: place for place, row in enumerate(after.rows) if row.id}
    old = {row.id: place for place, row in enumerate(before.rows)}
    assert [[ids[name] for name in row.after] for row in after.rows] == [
        [old[name] for name in row.after] for row in before.rows
    ]


def test_blurred_lengths_and_times_are_still_a_trace(tmp_path: Path) -> None:
    path = planted(tmp_path)
    _, rows = exported(path, round_tokens=24, jitter_s=30.0)
    found = validate([tmp_path / "out.jsonl"])
    assert (found.findings.wrong, found.stopped) == (0, None)
    assert {int(str(row["in"])) % 24 for row in rows} | {int(str(row["out"])) % 24 for row in rows} == {0}
    assert [row.at_s for row in read_trace(path).rows] != [row["t"] for row in rows]
    plain, blurred = (describe([place])[0] for place in (path, tmp_path / "out.jsonl"))
    assert blurred.span_s == pytest.approx(plain.span_s, abs=31)
    assert blurred.input_tokens.mean == pytest.approx(plain.input_tokens.mean, rel=0.2)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5_000), st.integers(1, 700), st.integers(1, 600), st.booleans())
def test_blocks_cover_rounded_prompts(tokens: int, step: int, block: int, whole: bool) -> None:
    count = tokens // block if whole else -(-tokens // block)
    fresh = iter(range(10**6, 10**7))
    blur = Blur(random.Random(0), round_tokens=step, jitter_s=0.0, block_tokens=block, fresh=fresh)
    row = blur.row(Row(0, tokens, 1, tuple(range(count)), prefix_tokens=tokens - 1, cached_tokens=tokens))
    assert row.input_tokens % step == 0
    assert abs(row.input_tokens - tokens) <= max(step / 2, step - tokens)
    assert not row.blocks or blocks_fit(len(row.blocks), row.input_tokens, block)
    kept = min(count, len(row.blocks))
    assert row.blocks[:kept] == tuple(range(kept))
    assert row.prefix_tokens is not None
    assert 0 <= row.prefix_tokens <= row.input_tokens


@pytest.mark.parametrize("field", ["session", "id", "class"])
def test_text_is_refused_and_not_repeated(tmp_path: Path, field: str) -> None:
    prompt = "please summarise the merger with tenant-acme before the board meets at noon"
    assert len(prompt) > 64
    for value in (prompt, "two\nlines"):
        row: Line = {"t": 0, "in": 3, "out": 1} | {field: value}
        path = tmp_path / "x.jsonl"
        header = {"loadgen_trace": 1, "source": "x", "format": "x", "rows_read": 1, "rows_kept": 1}
        path.write_text(f"{json.dumps(header)}\n{json.dumps(row)}\n")
        with pytest.raises(UserError, match=r"row 1: .*should be an id of at most 64 printable characters") as told:
            anonymise([path], tmp_path / "out.jsonl", Blurred())
        assert "tenant" not in str(told.value)
        assert not (tmp_path / "out.jsonl").exists()


def test_a_field_that_is_not_known_is_refused() -> None:
    assert set(Row.__struct_fields__) == KNOWN
    texts = {field.name for field in msgspec.structs.fields(Row) if "str" in str(field.type)}
    assert texts == set(NAMED)
    more = msgspec.defstruct("More", [("prompt", str, "")], bases=(Row,), frozen=True)
    with pytest.raises(UserError, match="prompt: not known to be free of text"):
        check(more(at_ns=0, input_tokens=1, output_tokens=1), Account("x", FORMATS["canonical"]))


def test_ids_within_sessions_stay_apart(tmp_path: Path) -> None:
    rows = [{"t": at, "in": 16, "out": 1, "blocks": [5], "session": f"s{at % 2}"} for at in range(4)]
    header = {"loadgen_trace": 1, "source": "x", "format": "x", "rows_read": 4, "rows_kept": 4}
    header |= {"block_tokens": 16, "block_scope": "session"}
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    blocks = [row["blocks"] for row in exported(path)[1]]
    assert blocks[0] == blocks[2] != blocks[1] == blocks[3]
