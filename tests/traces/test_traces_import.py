"""Any source to a canonical file: formats by content, units, several files, and the two formats that came with it."""

import gzip
import random
from pathlib import Path

import pytest

from loadgen.errors import UserError
from loadgen.records import TraceRow
from loadgen.traces.convert import import_trace
from loadgen.traces.formats import FORMATS, chosen
from loadgen.traces.read import read_trace
from loadgen.traces.sources import head

BURST_1 = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURST_3 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
45.0,0d5c3e7a-1111-4222-8333-944455556666,7.31,GPT-4,900,200,1100,Conversation log
46.2,,1.02,ChatGPT,300,20,320,API log
46.3,,,ChatGPT,0,0,0,API log
"""
PLUS = """{"session_id": "a", "timestamp": 1000, "input_length": 300, "output_length": 40}
{"session_id": "b", "timestamp": 1500, "text_input": "twelve signs", "output_length": 9}
{"session_id": "a", "delay": 2000, "input_length": 150, "output_length": 20}
{"session_id": "a", "delay": 0.5, "messages": [{"role": "user", "content": "12345"}], "output_length": 7}
{"session_id": "c", "timestamp": 9000, "input_length": 5}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def mooncake(instants_ms: list[float]) -> str:
    return "".join(f'{{"timestamp": {at}, "input_length": 5, "output_length": 1}}\n' for at in instants_ms)


def test_burstgpt_by_column_name_with_failures_dropped(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "1.csv", BURST_1))
    assert (trace.format, trace.rows_read, trace.dropped) == ("burstgpt", 3, {"no output tokens": 1})
    assert trace.rows[1] == TraceRow(at_s=113, input_tokens=417, output_tokens=276, kind="GPT-4, API log")


def test_burstgpt_3_with_its_inserted_columns(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "3.csv", BURST_3))
    assert trace.dropped == {"no input tokens": 1}
    first, second = trace.rows
    assert (first.input_tokens, first.output_tokens, first.duration_s) == (900, 200, 7.31)
    assert first.session == "0d5c3e7a-1111-4222-8333-944455556666"
    assert (second.at_s, second.session, second.kind) == (pytest.approx(1.2), None, "ChatGPT, API log")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("45.0", "12:45", "FILE:2: Timestamp: '12:45': should be seconds, 0 or more"),
        ("45.0", "nan", "FILE:2: Timestamp: 'nan': should be seconds"),
        ("900", "0x9", "FILE:2: Request tokens: '0x9': should be a whole number"),
        ("7.31", "-7", "FILE:2: Elapsed time: '-7': should be seconds"),
        ("300,20,", "300,", "FILE:3: 7 columns: should be 8, as in the header"),
        ("0d5c3e7a", "what is this " * 20, "FILE:2: Session ID: 'what is this"),
    ],
)
def test_a_malformed_burstgpt_row(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in BURST_3
    path = write(tmp_path, "t", BURST_3.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert str(caught.value).replace(str(path), "FILE").startswith(told)


def test_mooncakes_sessions_follow_by_delay_and_their_text_is_only_measured(tmp_path: Path) -> None:
    path = write(tmp_path, "t", PLUS)
    trace = read_trace(path)
    assert (trace.format, trace.rows_read, trace.dropped) == ("mooncake", 5, {"no output_length": 1})
    rows = [(row.session, row.turn, row.at_s, row.think_s, row.input_tokens) for row in trace.rows]
    assert rows == [("a", 1, 0, None, 300), ("b", 1, 0.5, None, 3), ("a", 2, 2, 2.0, 150), ("a", 3, 2.0005, 0.0005, 3)]
    assert trace.notes == ("input tokens of 2 rows are estimated: their text, at 4 characters a token",)
    import_trace([path], tmp_path / "out")
    assert "twelve" not in (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"delay": 2000, ', "", "FILE:3: timestamp: None: should be given, or a delay and an earlier row"),
        ('"timestamp": 1500, ', '"delay": 3, ', "FILE:2: timestamp: None: should be given"),
        ('"delay": 2000', '"delay": "2 s"', "FILE:3: delay: '2 s': should be milliseconds"),
        ('"input_length": 150', '"input_length": 150, "text_input": "x"', "FILE:3: input_length and text_input: 2:"),
        ('"input_length": 150, ', "", "FILE:3: input_length: missing"),
        ('"session_id": "b"', '"session_id": null', "FILE:2: session_id: None: should be an id"),
        ('"session_id": "b"', '"session_id": ["b"]', "FILE:2: session_id: ['b']: should be an id"),
    ],
)
def test_a_malformed_row_with_a_session(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in PLUS
    path = write(tmp_path, "t", PLUS.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert str(caught.value).replace(str(path), "FILE").startswith(told)


def test_a_file_is_read_the_same_way_directly_and_by_way_of_the_canonical_form(tmp_path: Path) -> None:
    for text in (BURST_1, BURST_3, PLUS):
        source, out = write(tmp_path, "source", text), tmp_path / "out"
        header = import_trace([source], out)
        direct, imported = read_trace(source), read_trace(out)
        assert direct.rows == imported.rows
        assert (header.rows_read, header.dropped, header.source_sha256) == (
            direct.rows_read,
            direct.dropped,
            direct.sha256,
        )
        assert header.rows_read == header.rows_kept + sum(header.dropped.values())


def test_a_zipped_file_and_a_file_out_of_order(tmp_path: Path) -> None:
    instants = [100.0 * number for number in range(300)]
    random.Random(1).shuffle(instants)
    plain = write(tmp_path, "plain", mooncake(instants))
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    header = import_trace([zipped], tmp_path / "out")
    assert header.notes[0].endswith("of 300 rows were out of order and have been sorted")
    assert [row.at_s for row in read_trace(tmp_path / "out").rows] == [number / 10 for number in range(300)]
    assert read_trace(tmp_path / "out").rows == read_trace(plain).rows
    zipped.write_bytes(zipped.read_bytes()[:200])
    with pytest.raises(UserError, match="zipped: damaged gzip file"):
        import_trace([zipped], tmp_path / "out")


@pytest.mark.parametrize(
    ("tail", "told"),
    [(b"\xff\xfe", "not text"), (b"9" * 200_000, "field larger than field limit"), (b'"', "columns: should be 6")],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_table_that_goes_wrong_late(tmp_path: Path, tail: bytes, told: str, zipped: bool) -> None:
    path, text = tmp_path / "t", BURST_1.encode() + BURST_1.encode().splitlines(keepends=True)[1] * 5000 + tail
    path.write_bytes(gzip.compress(text) if zipped else text)
    with pytest.raises(UserError, match=f"^{path}.*{told}"):
        read_trace(path)


def test_several_files_are_one_trace(tmp_path: Path) -> None:
    early, late = write(tmp_path, "b", BURST_1), write(tmp_path, "a", BURST_1.replace("\n5,", "\n5000,"))
    header = import_trace([late, early], tmp_path / "out")
    assert (header.source, header.rows_read, header.rows_kept) == ("a and 1 more", 6, 4)
    assert header.span_s == 4995
    other = write(tmp_path, "c", PLUS)
    with pytest.raises(UserError, match=r"b is burstgpt, .*c is mooncake; should be of one format"):
        import_trace([early, other], tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_times_in_another_unit_are_refused_or_forced(tmp_path: Path) -> None:
    seconds = [number * 0.08 for number in range(1000)]
    source, out = write(tmp_path, "t", mooncake(seconds)), tmp_path / "out"
    with pytest.raises(UserError, match=r"times were read as ms; should rather be s \(12.5/s\): --time-unit reads"):
        import_trace([source], out)
    assert not out.exists()
    assert import_trace([source], out, time_unit="s").span_s == pytest.approx(79.92)
    assert import_trace([source], out, force_units=True).span_s == pytest.approx(0.07992)
    busy = write(tmp_path, "busy", mooncake([number * 0.2 for number in range(400)]))
    assert import_trace([busy], out).notes == ("400 requests in 0.0798 s: check that the times are in the right unit",)
    slow = write(tmp_path, "slow", mooncake([number * 2e8 for number in range(100)]))
    with pytest.raises(UserError, match=r"100 requests in 1.98e\+07 s are 5.05e-06/s"):
        import_trace([slow], out)
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"20{n:02}-01-01 00:00:00,1,1\n" for n in range(100))
    dated = write(tmp_path, "dated", azure)
    with pytest.raises(UserError, match="its dates should be right; --force-units takes them"):
        import_trace([dated], out)
    with pytest.raises(UserError, match="--time-unit s: format azure has dates or fixed times"):
        import_trace([dated], out, time_unit="s")


def test_a_batch_and_a_slow_session_have_no_implausible_rate(tmp_path: Path) -> None:
    assert import_trace([write(tmp_path, "t", mooncake([7.0] * 200))], tmp_path / "out").span_s == 0
    turn = '{{"session_id": "a", "timestamp": {}, "input_length": 5, "output_length": 1}}\n'
    slow = write(tmp_path, "s", "".join(turn.format(number * 1e6) for number in range(200)))
    assert import_trace([slow], tmp_path / "out").span_s == 199_000


def test_mistakes_in_what_is_asked(tmp_path: Path) -> None:
    source = write(tmp_path, "t", BURST_1)
    with pytest.raises(UserError, match="t: is the source; should be another file"):
        import_trace([source], tmp_path / "." / "t")
    with pytest.raises(UserError, match="--option map: format burstgpt has no such option; it has none"):
        import_trace([source], tmp_path / "out", options={"map": "t=x"})
    with pytest.raises(UserError, match="a folder; format burstgpt is read from files"):
        import_trace([tmp_path], tmp_path / "out")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="a folder without files"):
        read_trace(empty)


def test_every_format_is_recognised_by_itself_alone(tmp_path: Path) -> None:
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n"
    for name, text in (("azure", azure), ("burstgpt", BURST_3), ("mooncake", PLUS)):
        path = write(tmp_path, "t", text)
        assert [format.name for format in FORMATS.values() if format.recognises(head(path))] == [name]
        import_trace([path], tmp_path / "out")
        assert chosen([tmp_path / "out"]).name == "canonical"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", ["", "\n", "{", "[1]", '{"a": 1}', "a,b\n1,2\n", "\x00", '"' * 70_000, "[" * 70_000])
def test_recognition_never_raises(tmp_path: Path, name: str, text: str) -> None:
    assert not FORMATS[name].recognises(head(write(tmp_path, "t", text)))
