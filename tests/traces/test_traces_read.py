import os
from pathlib import Path

import pytest

from loadgen.errors import UserError
from loadgen.records import Trace, TraceRow
from loadgen.traces.read import read_trace
from loadgen.workload import plan, scenario
from loadgen.workload.reuse import reused_ratio

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,110,27
2023-11-16 18:17:05.9799601,15,3
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,20,6
2024-05-10 02:00:01.5+02:00,30,7
"""
MOONCAKE = """{"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 30535, "input_length": 512, "output_length": 26, "hash_ids": [46]}
{"timestamp": 30535.5, "input_length": 3, "output_length": 1}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def read(file: Path, text: str, format: str = "auto") -> Trace:
    file.write_text(text, newline="")
    return read_trace(file, format)


def refused(file: Path, text: str, format: str = "auto") -> str:
    with pytest.raises(UserError) as caught:
        read(file, text, format)
    (line,) = caught.value.complaints
    return line.replace(str(file), "FILE")


def times(trace: Trace) -> list[float]:
    return [row.at_s for row in trace.rows]


def test_azure_with_seven_digits_and_no_zone(file: Path) -> None:
    trace = read(file, AZURE_2023)
    assert (trace.format, trace.rows_read, trace.dropped, trace.notes) == ("azure", 3, {}, ())
    assert times(trace) == [0, 0.052, 2.0000001]
    assert trace.rows[0] == TraceRow(at_s=0, input_tokens=4808, output_tokens=10)


def test_azure_with_zones_and_with_or_without_a_fraction(file: Path) -> None:
    assert times(read(file, AZURE_2024)) == pytest.approx([0, 0.99007, 1.49007], abs=1e-12)


def test_azure_over_midnight_with_a_byte_order_mark_and_windows_line_ends(file: Path) -> None:
    text = (
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-12-31 23:59:59,1,1\r\n2024-01-01 00:00:01Z,2,2\r\n\r\n"
    )
    trace = read(file, text)
    assert times(trace) == [0, 2]
    assert trace.rows_read == 2


def test_columns_are_found_by_name(file: Path) -> None:
    trace = read(file, "GeneratedTokens,NumImages,TIMESTAMP,ContextTokens\n7,0,2024-05-10 00:00:01,9\n")
    assert (trace.rows[0].input_tokens, trace.rows[0].output_tokens) == (9, 7)


def test_rows_without_tokens_are_dropped_by_reason(file: Path) -> None:
    day = "2023-11-16 18:17:0"
    trace = read(file, f"{AZURE_2023}{day}6,0,5\n{day}7,0,0\n{day}8,5,0\n")
    assert trace.dropped == {"no input tokens": 2, "no output tokens": 1}
    assert trace.rows_read == 6 == len(trace.rows) + sum(trace.dropped.values())


def test_rows_out_of_order_are_sorted_and_told(file: Path) -> None:
    header, *rows = AZURE_2023.splitlines(keepends=True)
    trace = read(file, header + "".join((rows[2], rows[0], rows[1])))
    assert trace.rows == read(file, AZURE_2023).rows
    assert trace.notes == ("2 of 3 rows were out of order and have been sorted",)


def test_mooncake_in_milliseconds_with_blocks(file: Path) -> None:
    trace = read(file, MOONCAKE)
    assert (trace.format, trace.rows_read) == ("mooncake", 3)
    assert times(trace) == pytest.approx([0, 3.053, 3.0535], abs=1e-12)
    assert (trace.rows[0].blocks, trace.rows[0].block_tokens) == ((46, 47, 2353), 512)
    assert (trace.rows[2].blocks, trace.rows[2].block_tokens) == ((), None)


def test_mooncake_with_a_byte_order_mark(file: Path) -> None:
    assert read(file, "\ufeff" + MOONCAKE).rows == read(file, MOONCAKE).rows


def test_ids_of_any_width(file: Path) -> None:
    wide = 2**70 + 1
    trace = read(file, f'{{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [{wide}]}}\n')
    assert trace.rows[0].blocks == (wide,)


def test_a_coarse_clock_is_told(file: Path) -> None:
    line = '{"timestamp": 3000, "input_length": 5, "output_length": 1}\n'
    (note,) = read(file, line * 4).notes
    assert note.startswith("100 % of the rows share their instant with others")


def test_seconds_where_milliseconds_should_be_are_refused(file: Path) -> None:
    lines = [f'{{"timestamp": {at / 100}, "input_length": 5, "output_length": 1}}\n' for at in range(200)]
    assert refused(file, "".join(lines)) == (
        "FILE: 200 requests in 0.00199 s are 1.01e+05/s, which no service sees: its times were read as ms; "
        "should rather be s (101/s): --time-unit reads them so; --force-units takes them as they are"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("110", "eleven", "FILE:3: ContextTokens: 'eleven': should be a whole number of tokens"),
        ("110", "-110", "FILE:3: ContextTokens: '-110': should be a whole number of tokens"),
        ("110", "1.5", "FILE:3: ContextTokens: '1.5': should be a whole number of tokens"),
        (",27", ",", "FILE:3: GeneratedTokens: '': should be a whole number of tokens"),
        (",27", "", "FILE:3: 2 columns: should be 3, as in the header"),
        (
            "18:17:04.0319600",
            "25:17:04",
            "FILE:3: TIMESTAMP: '2023-11-16 25:17:04': should be a time such as 2023-11-16",
        ),
        (
            "2023-11-16 18:17:04",
            "2023-02-30 18:17:04",
            "FILE:3: TIMESTAMP: '2023-02-30 18:17:04.0319600': should be a date",
        ),
        ("2023-11-16 18:17:04.0319600", "1700158624", "FILE:3: TIMESTAMP: '1700158624': should be a time such as"),
    ],
)
def test_a_malformed_azure_row(file: Path, old: str, new: str, told: str) -> None:
    assert old in AZURE_2023
    assert refused(file, AZURE_2023.replace(old, new)).startswith(told)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "[46, 47, 2353]",
            "[46, 47]",
            "FILE:1: number of hash_ids: 2: should be 3 for input_length 1100 (blocks of 512",
        ),
        ("[46]", '["46"]', "FILE:2: hash_ids: ['46']: should be a list of whole numbers"),
        ("512", '"512"', "FILE:2: input_length: '512': should be a whole number of tokens"),
        ("512", "-512", "FILE:2: input_length: -512: should be a whole number of tokens"),
        ("30535,", "true,", "FILE:2: timestamp: True: should be milliseconds"),
        ("30535,", "NaN,", "FILE:2: '{"),
        ('"output_length": 26, ', "", "FILE:2: output_length: missing: should be given in every row"),
        ('{"timestamp": 30535,', '{"timestamp" 30535,', "FILE:2: '{"),
        ('{"timestamp": 30535,', '{"a":' * 3000, "FILE:2: '{"),
        ('"hash_ids": [46]}', '"hash_ids": [46]', "FILE:2: '{"),
    ],
)
def test_a_malformed_mooncake_row(file: Path, old: str, new: str, told: str) -> None:
    assert old in MOONCAKE
    assert refused(file, MOONCAKE.replace(old, new)).startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "FILE: empty; should be a trace"),
        ("\n\n", "FILE: empty; should be a trace"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "FILE: no row to send; should hold at least one request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,0,1\n", "FILE: no row to send: 1 with no input"),
        ("[" * 5000 + "\n", "FILE:1: '[[["),
        ("a,b,c\n1,2,3\n", "FILE:1: 'a,b,c': no known trace format; should be one of canonical, azure"),
        ('{"chat_id": 1, "timestamp": 1, "input_length": 9, "output_length": 9}\n', "FILE:1: '{"),
    ],
)
def test_files_that_hold_no_trace(file: Path, text: str, told: str) -> None:
    assert refused(file, text).startswith(told)


def test_a_format_that_is_given_is_not_guessed(file: Path) -> None:
    assert refused(file, MOONCAKE, "azure").startswith("FILE:1: header: no column TIMESTAMP, ContextTokens")
    assert refused(file, AZURE_2023, "mooncake").startswith("FILE:1: 'TIMESTAMP,ContextTokens,GeneratedTokens': should")
    assert refused(file, AZURE_2023, "csvx").startswith("csvx: no such trace format; should be auto, canonical, azure")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gone: cannot be read: No such file"):
        read_trace(tmp_path / "gone")
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="b: not text; should be a trace"):
        read_trace(tmp_path / "b")


REAL = pytest.mark.skipif("LOADGEN_TRACES" not in os.environ, reason="LOADGEN_TRACES names no folder of real traces")


def replayed(path: Path) -> plan.Plan:
    trace = read_trace(path)
    text = f"name: x\nworkload: {{trace: {{path: '{path}'}}}}\nstages: [{{name: replay, speed: 1}}]\n"
    return plan.build(scenario.parse(text, Path("s.yaml")), trace)


@REAL
def test_azures_conversation_trace() -> None:
    path = Path(os.environ["LOADGEN_TRACES"]) / "azure-2023" / "AzureLLMInferenceTrace_conv.csv"
    trace = read_trace(path)
    assert trace.rows_read == len(trace.rows) == 19_366
    assert sorted(row.input_tokens for row in trace.rows)[19_366 // 2] == 1_020
    assert sorted(row.output_tokens for row in trace.rows)[19_366 // 2] == 129
    assert trace.rows[-1].at_s == pytest.approx(3_501.72, abs=0.01)


@REAL
def test_mooncakes_conversation_trace_reuses_what_its_paper_says() -> None:
    path = Path(os.environ["LOADGEN_TRACES"]) / "mooncake-fast25" / "conversation_trace.jsonl"
    built = replayed(path)
    assert built.stages[0].spec.planned == 12_031
    assert 3_537 <= (built.stages[0].requests[-1].due_s or 0) < 3_540, "spread over the last step of 3 s"
    assert reused_ratio(built.stages[0].requests) == pytest.approx(0.3736, abs=0.0005)
