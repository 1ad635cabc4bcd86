"""pydantic's errors as a person wants them: file and line, dotted key, value, what would be right."""

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loadgen.document import Document
from loadgen.errors import MOST_COMPLAINTS
from loadgen.workload.fields import Keys, Quantiles, Range
from loadgen.workload.grid import Grid
from loadgen.workload.model import Bursts, Limit, Scenario, SloKeys, Stage, Workload
from loadgen.workload.source import TraceSource
from loadgen.workload.traffic import Class, Families, Sessions, SharedPrefix

Place = tuple[str | int, ...]

# The model that stands under each key, to name the keys that it knows.
MODELS: dict[str, tuple[type[Keys], ...]] = {
    "": (Scenario,),
    "workload": (Workload,),
    "stages": (Stage,),
    "trace": (TraceSource,),
    "mix": (Class,),
    "shared_prefix": (SharedPrefix,),
    "families": (Families,),
    "sessions": (Sessions,),
    "bursts": (Bursts,),
    "grid": (Grid,),
    "limit": (Limit,),
    "slo": (SloKeys,),
    "input_tokens": (Range, Quantiles),
    "output_tokens": (Range, Quantiles),
}

PLAINER = {
    "model_type": "should be a mapping of keys",
    "model_attributes_type": "should be a mapping of keys",
    "dict_type": "should be a mapping of keys",
    "tuple_type": "should be a list",
    "string_type": "should be text, in quotes if it looks like something else",
    "string_pattern_mismatch": "should be of letters, digits, dot, dash, underscore, beginning with a letter or digit",
}
COUNTED = re.compile(r"should have (at least|at most) (\d+) items?\b")
NUMBERS = {"1": "one value", "2": "two values"}
AT_LEAST = ("greater than or equal to", "at least")
AT_MOST = ("less than or equal to", "at most")


def lines(path: Path, document: Document, error: ValidationError) -> Iterator[str]:
    """One line per complaint, in the order of the file; the first MOST_COMPLAINTS alone."""
    entries = error.errors(include_url=False)
    found = {_line(path, document, entry) for entry in entries if not _counted_wrong(entry, entries)}
    return (text for _, text in sorted(found)[:MOST_COMPLAINTS])


def _kind(entry: Any) -> str:
    return str(entry.get("ctx", {}).get("kind", entry["type"]))


def _counted_wrong(entry: Any, entries: Sequence[Any]) -> bool:
    """True for a list that is too short only because an entry of it is wrong itself, and was not counted."""
    place = entry["loc"]
    return _kind(entry) == "too_short" and any(
        len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in entries
    )


def _line(path: Path, document: Document, entry: Any) -> tuple[int, str]:
    kind = _kind(entry)
    place = _place(document.data, entry["loc"], absent=kind == "missing")
    number = document.line(place)
    where = str(path) if number is None else f"{path}:{number}"
    value, present = _value(document.data, place)
    shown = (
        [_shown(value)]
        if present and kind not in ("extra_forbidden", "invalid_key") and not isinstance(value, dict | list)
        else []
    )
    return number or 0, ": ".join((where, dotted(place), *shown, _should(kind, entry, place)))


def dotted(place: Sequence[str | int]) -> str:
    """("stages", 1, "rate") -> "stages[1].rate"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.lstrip(".")


def _place(data: Any, loc: Place, *, absent: bool) -> Place:
    """`loc` without the names of union branches, which are not keys of the file."""
    place: list[str | int] = []
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        inside = data[part] if _has(data, part) else None
        if _has(data, part) or (last and (absent or isinstance(data, dict)) and part not in ("constant", "[key]")):
            place.append(part)
            data = inside
    return tuple(place)


def _has(data: Any, part: str | int) -> bool:
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _value(data: Any, place: Place) -> tuple[Any, bool]:
    for part in place:
        if not _has(data, part):
            return None, False
        data = data[part]
    return data, True


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _should(kind: str, entry: Any, place: Place) -> str:
    if kind in ("extra_forbidden", "invalid_key"):
        return _nearest(place)
    if kind == "missing":
        return f"missing; required{_describe(place)}"
    if (counted := COUNTED.search(entry["msg"])) is not None:
        return f"should hold {NUMBERS.get(counted[2], f'{counted[2]} values')} {counted[1]}"
    return PLAINER.get(kind) or entry["msg"].replace("Input should", "should").replace(*AT_LEAST).replace(*AT_MOST)


def _models(place: Place) -> tuple[type[Keys], ...]:
    parents = [part for part in place[:-1] if isinstance(part, str)]
    return MODELS.get(parents[-1] if parents else "", ())


def _nearest(place: Place) -> str:
    known = [name for model in _models(place) for name in model.model_fields]
    near = difflib.get_close_matches(str(place[-1]), known, 1)
    hint = f"did you mean {near[0]}? Known" if near else "known"
    return f"unknown key; {hint}: {', '.join(known)}"


def _describe(place: Place) -> str:
    fields = [model.model_fields[str(place[-1])] for model in _models(place) if str(place[-1]) in model.model_fields]
    return f" ({fields[0].description})" if fields else ""
