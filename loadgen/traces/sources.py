"""Files as readers need them: lines of text or of JSON, gzip undone, foreign errors turned into one line."""

import csv
import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from loadgen.errors import UserError
from loadgen.traces.rows import Head, shown

HEAD_CHARACTERS = 65_536
GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The text in `path`, without its byte order mark; line ends are left as they are.

    What goes wrong within the `with` block is a UserError that names the file.
    """
    with readable(path), _text(path, "strict") as lines:
        yield lines


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns foreign errors from reading `path` into a UserError that names it.

    For a generator that reads a file which another has `opened`: errors do not pass from one to the other.
    """
    try:
        yield
    except csv.Error as error:
        raise UserError(f"{path}: {error}; should be CSV") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not text; should be a trace in UTF-8") from error
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file: {error}; should be whole") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}; should be a trace file") from error


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line of a JSON-lines file that is not blank. UserError at the first other line."""
    decode = msgspec.json.Decoder().decode
    with opened(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = decode(line)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                if not line.strip():
                    continue
                raise UserError(f"{path}:{number}: {shown(line.strip())}: should be a JSON object ({error})") from error
            if not isinstance(value, dict):
                raise UserError(f"{path}:{number}: {shown(line.strip())}: should be a JSON object")
            yield number, value


def document(path: Path) -> Any:
    """What a file holds that is JSON as a whole. Raises UserError if it is not."""
    with opened(path) as text:
        try:
            return msgspec.json.decode(text.read())
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON: {error}; should be one whole JSON value") from error


def first_object(head: Head) -> dict[str, Any] | None:
    """The object in the first line of a file, for `recognises`; None if that is not one, or is cut off."""
    if not head.lines:
        return None
    try:
        value = msgspec.json.decode(head.lines[0])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def header_cells(head: Head) -> tuple[str, ...]:
    """The cells of a CSV file's first line, for `recognises`; empty where that is not CSV."""
    try:
        cells = next(csv.reader(head.lines[:1]), [])
    except csv.Error:
        return ()
    return tuple(cell.strip() for cell in cells)


def head(path: Path) -> Head:
    """The beginning of a file, or of a folder's first file by name. Raises UserError if it cannot be read."""
    try:
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else []
        if path.is_dir() and not files:
            raise UserError(f"{path}: a folder without files; should be a trace")
        with _text(files[0] if files else path, "replace") as lines:
            text = lines.read(HEAD_CHARACTERS)
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file: {error}; should be whole") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}; should be a trace file") from error
    lines_in = tuple(line.strip() for line in text.splitlines() if line.strip())
    return Head(path=path, text=text, lines=lines_in, files=tuple(file.name for file in files))


def sha256(paths: Sequence[Path]) -> str:
    """Of one file its digest; of several, and of folders (by name), the digest over the files' digests."""
    digests = [_digest(file) for path in paths for file in files(path)]
    if len(digests) == 1:
        return digests[0].hex()
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; should be a trace file") from error


def files(path: Path) -> list[Path]:
    """The path itself, or the files in a folder and below it, by name."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _text(path: Path, errors: str) -> TextIO:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")
    return path.open(encoding="utf-8-sig", errors=errors, newline="")
