"""Writes a report's four files into a folder."""

import io
import os
import tempfile
from pathlib import Path

from rich.console import Console

from loadgen.errors import ExperimentError
from loadgen.records import Report
from loadgen.report import as_html, as_json, as_prometheus, as_text

TEXT_COLUMNS = 100


def write_all(report: Report, folder: Path) -> list[Path]:
    """Writes report.json, report.txt, report.prom and report.html in `folder`; gives their paths.

    Each file appears whole or not at all. Raises ExperimentError if the disk refuses (full, read-only).
    """
    contents = {
        "report.json": as_json.render(report),
        "report.txt": plain_text(report).encode(),
        "report.prom": as_prometheus.render(report).encode(),
        "report.html": as_html.render(report).encode(),
    }
    again = "write it again with `loadgen report`"
    return [write_file(folder / name, content, again) for name, content in contents.items()]


def plain_text(report: Report, *, columns: int = TEXT_COLUMNS, detail: bool = True) -> str:
    """The text report without colour, for a file."""
    page = io.StringIO()
    as_text.render(report, Console(file=page, width=columns, color_system=None), detail=detail)
    return page.getvalue()


def write_file(path: Path, content: bytes, again: str = "run the command again") -> Path:
    """Writes `path`, whole or not at all; gives it. Raises ExperimentError, which says `again`, if the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            part = Path(folder) / "whole"  # in a folder of our own: no file of the user's can have this name
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    except OSError as error:
        raise ExperimentError(f"{path}: cannot write: {error.strerror}; free some space, then {again}") from error
    return path
