"""A ServeGen client's two files, checked."""

import ast
import csv
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loadgen.errors import UserError
from loadgen.traces.rows import malformed, shown
from loadgen.traces.sources import document, files, opened
from loadgen.traces.values import MOST_TOKENS

TRACE, DATASET = "-trace.csv", "-dataset.json"
PATTERNS = ("Gamma", "Weibull", "")
WIDTH_S = 600.0  # of a window that no other follows
MOST_PER_S = 1e6
SHAPES = (0.02, 1000.0)  # below, gaps are too small for floats; above, they are all alike
MOST_CHARACTERS = 16 * 2**20  # of one dict's text
NUMBER = "a number, 0 or more"


class Window(NamedTuple):
    """How requests came in a stretch of time. `scale` is left out: the rate says it."""

    start_s: float
    width_s: float
    rate_per_s: float
    pattern: str
    shape: float


class Lengths(NamedTuple):
    """Numbers of tokens and the sums of their frequencies, in order; empty where nothing was measured."""

    tokens: tuple[int, ...]
    cumulative: tuple[float, ...]


class Client:
    """A client: its windows, and its lengths, read one of their windows at a time."""

    def __init__(self, name: str, trace: Path) -> None:
        self.name = name
        self.path = trace.with_name(trace.name.removesuffix(TRACE) + DATASET)
        self.windows = _windows(trace)
        if not self.path.exists():
            raise UserError(f"{trace}: no dataset beside it; should be {self.path.name}, the client's lengths")
        self._dataset = _dataset(self.path)
        self._starts_s = sorted(self._dataset)
        self._known: tuple[float, tuple[Lengths, Lengths]] | None = None

    def lengths(self, at_s: float) -> tuple[Lengths, Lengths]:
        """Of inputs and outputs, in the window that `at_s` lies in."""
        place = bisect_right(self._starts_s, at_s) - 1
        if place < 0:
            return Lengths((), ()), Lengths((), ())
        start_s = self._starts_s[place]
        if self._known is None or self._known[0] != start_s:
            given = self._dataset[start_s]
            asked, answered = (
                frequencies(given.get(key), self.path, f"{start_s:g}.{key}")
                for key in ("input_tokens", "output_tokens")
            )
            self._known = start_s, (asked, answered)
        return self._known[1]


def clients(paths: Sequence[Path]) -> list[Client]:
    """Every client that a path names: a folder, or either file. By the file's name, where that is one's alone."""
    traces = dict.fromkeys(trace for path in paths for trace in _traces(path))
    stems = [trace.name.removesuffix(TRACE) for trace in traces]
    return [
        Client(stem if stems.count(stem) == 1 else f"{trace.parent.name}/{stem}", trace)
        for stem, trace in zip(stems, traces, strict=True)
    ]


def _traces(path: Path) -> Iterator[Path]:
    if path.is_dir():
        found = [file for file in files(path) if file.name.endswith(TRACE)]
        if not found:
            raise UserError(f"{path}: no file ends with {TRACE}; should hold clients of ServeGen")
        yield from found
    elif path.name.endswith(DATASET):
        yield path.with_name(path.name.removesuffix(DATASET) + TRACE)
    elif path.name.endswith(TRACE):
        yield path
    else:
        raise UserError(f"{path}: should be called NAME{TRACE}, beside NAME{DATASET}")


def _windows(path: Path) -> tuple[Window, ...]:
    with opened(path) as lines:
        reader = csv.reader(lines)
        read = [_window(cells, path, reader.line_num) for cells in reader if cells]
    starts = [window.start_s for window in read]
    for number, (earlier, later) in enumerate(itertools.pairwise(starts), 2):
        if later <= earlier:
            raise malformed(path, number, "window_start", later, f"above {earlier:g}, the row before")
    widths = [later - earlier for earlier, later in itertools.pairwise(starts)]
    last = min(widths, default=WIDTH_S)
    return tuple(window._replace(width_s=width) for window, width in zip(read, [*widths, last], strict=True))


def _window(cells: list[str], path: Path, line: int) -> Window:
    if len(cells) != 6:
        raise UserError(f"{path}:{line}: {len(cells)} columns: should be 6: window_start,rate,cv,pattern,shape,scale")
    start_s = _number(cells[0], path, line, "window_start", (0, 1e12), "seconds, 0 or more")
    rate_per_s = _number(cells[1], path, line, "rate", (0, MOST_PER_S), f"requests per second, 0 to {MOST_PER_S:g}")
    pattern = cells[3].strip()
    if pattern not in PATTERNS:
        raise malformed(path, line, "pattern", pattern, "Gamma, Weibull or empty")
    shape = 1.0
    if pattern and rate_per_s:
        shape = _number(cells[4], path, line, "shape", SHAPES, f"{SHAPES[0]:g} to {SHAPES[1]:g}")
    return Window(start_s, WIDTH_S, rate_per_s, pattern, shape)


def _number(cell: str, path: Path, line: int, column: str, bounds: tuple[float, float], should: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not bounds[0] <= value <= bounds[1]:
        raise malformed(path, line, column, cell, should)
    return value


def _dataset(path: Path) -> dict[float, dict[str, Any]]:
    value = document(path)
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise UserError(f"{path}: should be a JSON object of windows: second of start to input_tokens, output_tokens")
    try:
        return {float(start): window for start, window in value.items()}
    except ValueError as error:
        raise UserError(f"{path}: start of a window: {error}; should be seconds") from error


def frequencies(text: Any, path: Path, key: str) -> Lengths:
    """The dict in a text such as `{81: 0.0014, 82.0: 0.0157}`, its keys as whole tokens; `{}`: nothing was measured."""
    should = "a text that holds a Python dict of tokens to frequencies, such as '{81: 0.4, 82: 0.6}'"
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise UserError(f"{path}: {key}: {shown(text)}: should be {should}")
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UserError(f"{path}: {key}: {shown(text)}: should be {should}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: {key}: {shown(text)}: should be {should}")
    for tokens, share in found.items():
        if not _is_number(tokens, MOST_TOKENS) or not _is_number(share, 1e12):
            raise UserError(f"{path}: {key}: {shown({tokens: share})}: should be tokens and how often, {NUMBER}")
    kept = sorted((round(tokens), float(share)) for tokens, share in found.items() if share > 0)
    return Lengths(tuple(tokens for tokens, _ in kept), tuple(itertools.accumulate(share for _, share in kept)))


def _is_number(value: Any, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < most
