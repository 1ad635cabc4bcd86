"""Traces for tests of readers: files from text, what a reader says of them, and the folder of real ones."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from loadgen.errors import UserError
from loadgen.records import Trace
from loadgen.traces.convert import import_trace
from loadgen.traces.formats import FORMATS
from loadgen.traces.read import read_trace
from loadgen.traces.sources import head

REAL = pytest.mark.skipif("LOADGEN_TRACES" not in os.environ, reason="LOADGEN_TRACES names no folder of real traces")


def real(name: str) -> Path:
    """A file or folder among the real traces, for tests marked `REAL`."""
    return Path(os.environ["LOADGEN_TRACES"]) / name


def write(path: Path, text: str) -> Path:
    """A file of that text, in a folder that is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refused(path: Path, options: Mapping[str, str] | None = None, format: str = "auto") -> str:
    """The one line that a reader refuses a file with; the path in it is called FILE."""
    with pytest.raises(UserError) as caught:
        read_trace(path, format, options)
    (line,) = caught.value.complaints
    return line.replace(str(path), "FILE")


def recognised_by(path: Path) -> list[str]:
    """The formats that would take a file as theirs."""
    beginning = head(path)
    return [format.name for format in FORMATS.values() if format.recognises(beginning)]


def both_ways(path: Path, options: Mapping[str, str] | None = None) -> Trace:
    """A trace read directly, which has to be the same by way of the canonical form."""
    out = path.with_name(f"{path.name}.out")
    header = import_trace([path], out, options=options)
    direct, imported = read_trace(path, options=options), read_trace(out)
    assert direct.rows == imported.rows
    assert (header.rows_read, header.dropped) == (direct.rows_read, direct.dropped)
    out.unlink()
    return direct
