"""Lines put in order of time in constant memory: sorted runs in temporary files, then merged. Stable.

A buffer of lines is sorted, and its earlier half goes to the current run, if it does not begin before that run's end;
else a new run begins. Logs that are in order, or nearly so, give one run.
"""

import heapq
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

MOST_LINES = 65_536  # in the buffer
MOST_BYTES = 16 * 2**20
MOST_RUNS = 64  # open at once

Line = tuple[int, bytes]  # whole nanoseconds, and the rest of the line with its end
_AT = itemgetter(0)


class Sorter:
    """Takes lines in any order with `add`, then gives them in order of time, once, with `merged`. Files in `folder`."""

    def __init__(self, folder: Path, most_lines: int = MOST_LINES) -> None:
        self._folder = folder
        self._most_lines = most_lines
        self._buffer: list[Line] = []
        self._bytes = 0
        self._runs: list[Path] = []
        self._last_ns = 0  # of the current run
        self._count = 0

    def add(self, at_ns: int, line: bytes) -> None:
        """One more line."""
        self._buffer.append((at_ns, line))
        self._bytes += len(line)
        if len(self._buffer) >= self._most_lines or self._bytes >= MOST_BYTES:
            self._spill(keep=len(self._buffer) // 2)

    def merged(self) -> Iterator[Line]:
        """All lines in order of time; those of one instant as they came."""
        self._spill(keep=0)
        return _merged(self._runs)

    def _spill(self, keep: int) -> None:
        self._buffer.sort(key=_AT)
        piece = self._buffer[: len(self._buffer) - keep]
        self._buffer = self._buffer[len(piece) :]
        self._bytes = sum(len(line) for _, line in self._buffer)
        if not piece:
            return
        if not self._runs or piece[0][0] < self._last_ns:
            self._begin()
        _append(self._runs[-1], piece)
        self._last_ns = piece[-1][0]

    def _begin(self) -> None:
        if len(self._runs) == MOST_RUNS:
            whole = self._new()
            _append(whole, _merged(self._runs))
            for run in self._runs:
                run.unlink()
            self._runs = [whole]
        self._runs.append(self._new())

    def _new(self) -> Path:
        self._count += 1
        return self._folder / f"{self._count}.run"


def _append(path: Path, lines: Iterable[Line]) -> None:
    with path.open("ab", buffering=2**20) as file:
        file.writelines(b"%d\t%s" % line for line in lines)


def _merged(runs: list[Path]) -> Iterator[Line]:
    return _read(runs[0]) if len(runs) == 1 else heapq.merge(*map(_read, runs), key=_AT)


def _read(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        for line in file:
            at_ns, _, rest = line.partition(b"\t")
            yield int(at_ns), rest
