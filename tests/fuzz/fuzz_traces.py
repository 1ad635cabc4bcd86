"""A trace file in each format and by its looks: every row accounted for, or one complaint."""

import math
import re

import files
import fuzzing

with fuzzing.instrumented():
    from loadgen.errors import UserError
    from loadgen.records import Trace
    from loadgen.traces.formats import FORMATS
    from loadgen.traces.read import read_trace

FILE = files.folder() / "trace"


def check(trace: Trace, data: bytes) -> None:
    """Rows in order of time from zero; read = kept + dropped."""
    fuzzing.outcome(trace.format, min(len(trace.rows), 9), list(trace.dropped), [note[-20:] for note in trace.notes])
    assert trace.format in FORMATS
    assert trace.rows_read == len(trace.rows) + sum(trace.dropped.values())
    if trace.format == "mooncake":
        lines = re.split(r"\r\n|\r|\n", data.decode("utf-8-sig"))
        assert trace.rows_read == sum(bool(line.strip()) for line in lines)
    times = [row.at_s for row in trace.rows]
    assert times == sorted(times)
    assert times[0] == 0
    assert all(map(math.isfinite, times))
    for row in trace.rows:
        assert row.input_tokens > 0
        assert row.output_tokens > 0
        assert not row.blocks or (row.block_tokens or 0) * (len(row.blocks) - 1) < row.input_tokens
    for note in trace.notes:
        fuzzing.check_line(note)


def one_input(data: bytes) -> None:
    """The same by looks as by name."""
    FILE.write_bytes(data)
    found = {}
    for format in ("auto", *FORMATS):
        try:
            found[format] = trace = read_trace(FILE, format)
        except UserError as error:
            fuzzing.check_complaints(error.complaints, most=1)
        else:
            check(trace, data)
    if "auto" in found:
        assert found["auto"] == found[found["auto"].format]


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "traces", most_bytes=4096, has_json=True)
