"""Reads scenario files: finds them by name or path, and tells every mistake at once, a line each.

A complaint reads `FILE:LINE: KEY: VALUE: what would be right`.
"""

import difflib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import loadgen
from loadgen import document
from loadgen.errors import MOST_COMPLAINTS, UserError
from loadgen.workload.complaints import lines
from loadgen.workload.model import Scenario, Stage

__all__ = ["Scenario", "Stage", "find", "load", "names", "parse"]


def load(path: Path) -> Scenario:
    """The scenario in the YAML file `path`. Raises UserError with one line per complaint."""
    return _scenario(document.load(path), path)


def parse(text: str, path: Path) -> Scenario:
    """The scenario that `text` holds; `path` names it in complaints and is where relative trace paths start."""
    return _scenario(document.read(text, path), path)


def _scenario(read: document.Document, path: Path) -> Scenario:
    if not isinstance(read.data, dict):
        held = "empty" if read.data is None else f"a {type(read.data).__name__}"
        raise UserError(f"{path}: {held}; should be a mapping with name, workload and stages")
    folders: dict[str, Any] = {"folders": (path.parent, Path())}
    try:
        return Scenario.model_validate(read.data, context=folders)
    except ValidationError as error:
        more = max(0, error.error_count() - MOST_COMPLAINTS)
        raise UserError(*lines(path, read, error), more=more) from error


def find(name_or_path: str) -> Path:
    """The file of a scenario: a path, or the name of one in `scenarios/` here or among those that come along.

    Raises UserError that tells the nearest name.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise UserError(f"{name_or_path}: no such file; should be a scenario file or one of: {', '.join(names())}")
    known = names()
    if name_or_path in known:
        return known[name_or_path]
    near = difflib.get_close_matches(name_or_path, known, 1)
    hint = f"did you mean {near[0]}? Known" if near else "should be a file or one of"
    raise UserError(f"{name_or_path}: no such scenario; {hint}: {', '.join(known)}")


def names() -> dict[str, Path]:
    """The scenarios that can be called by name. Those in ./scenarios come before those of the installation."""
    package = Path(loadgen.__file__).parent
    folders = (Path("scenarios"), package.parent / "scenarios", package / "_data" / "scenarios")
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))
