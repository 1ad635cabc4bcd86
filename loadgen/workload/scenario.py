"""Reads scenario files: finds them by name or path, and tells every mistake at once, a line each.

A complaint reads `FILE:LINE: KEY: VALUE: what would be right`.
"""

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

import loadgen
from loadgen.errors import UserError
from loadgen.workload.complaints import lines
from loadgen.workload.document import Document, read
from loadgen.workload.model import Scenario, Stage

__all__ = ["Scenario", "Stage", "find", "load", "names", "parse"]


def load(path: Path) -> Scenario:
    """The scenario in the YAML file `path`. Raises UserError with one line per complaint."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason}; should be a scenario file in YAML") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Scenario:
    """The scenario that `text` holds; `path` names it in complaints and is where relative trace paths start."""
    document = _document(text, path)
    if not isinstance(document.data, dict):
        held = "empty" if document.data is None else f"a {type(document.data).__name__}"
        raise UserError(f"{path}: {held}; should be a mapping with name, workload and stages")
    folders: dict[str, Any] = {"folders": (path.parent, Path())}
    try:
        return Scenario.model_validate(document.data, context=folders)
    except ValidationError as error:
        raise UserError(*lines(path, document, error)) from error


def _document(text: str, path: Path) -> Document:
    try:
        return read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        column = f" (column {mark.column + 1})" if mark else ""
        told = " ".join(part for part in (error.context, error.problem) if part)
        raise UserError(f"{where}: not YAML: {told}{column}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply; should be a mapping with name, workload and stages") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


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
