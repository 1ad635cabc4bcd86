"""Rows -> a canonical trace file, in constant memory, whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from loadgen.errors import ExperimentError
from loadgen.traces.canonical import Header, body, header_line, time_text
from loadgen.traces.frame import Clock
from loadgen.traces.rows import Row
from loadgen.traces.sort import Sorter

CLOCK_BYTES = 1_024  # more than what the clock adds to a header


def write_trace(rows: Iterable[Row], out: Path, header: Callable[[Clock], Header]) -> Header:
    """Writes `rows`, in any order, to `out` in order of time, from 0 at the first; gives the header as written.

    `header` is called when all rows have been taken, with an empty clock to learn how long it is, and when they have
    been sorted, with the clock that has seen them. Temporary files lie next to `out`. Raises ExperimentError if the
    disk refuses; what `rows` raises is raised. `out` is then as it was.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            sorter = Sorter(Path(folder))
            for row in rows:
                sorter.add(row.at_ns, body(row))
            part = Path(folder) / "whole"  # in a folder of our own: no file of the user's can have this name
            with part.open("wb") as file:
                written = _write(sorter, file, header)
                file.flush()
                os.fsync(file.fileno())
            part.replace(out)
    except OSError as error:
        raise ExperimentError(
            f"{out}: cannot write: {error.strerror or error}; free some space or choose another place"
        ) from error
    return written


def _write(sorter: Sorter, file: BinaryIO, header: Callable[[Clock], Header]) -> Header:
    """The header comes first but knows the rows: room is left for it, and it is filled up with spaces."""
    width = len(header_line(header(Clock()))) + CLOCK_BYTES
    file.write(b" " * (width - 1) + b"\n")
    clock = Clock()
    first_ns: int | None = None
    for at_ns, rest in sorter.merged():
        first_ns = at_ns if first_ns is None else first_ns
        clock.see(at_ns)
        file.write(time_text(at_ns - first_ns) + rest)
    whole = header(clock)
    line = header_line(whole).rstrip(b"\n").ljust(width - 1)
    if len(line) >= width:
        raise ValueError("a header grew by more than its clock")
    file.seek(0)
    file.write(line)
    return whole
