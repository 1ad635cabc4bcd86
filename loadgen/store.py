"""The run directory: appended to while a run goes, read whole afterwards, never edited.

    DIR/experiment.json          ExperimentManifest, written once
    DIR/plan.json                Plan, written once
    DIR/servers/ARM[-ORDER].log  what each server printed, whole
    DIR/blocks/NNN-ARM/          one block
        manifest.json facts.json samples.jsonl scrapes.jsonl health.jsonl marks.jsonl end.json

JSON lines are flushed as they come; a line cut off by a crash is left out when read. A block without `end.json`
was cut off and is not complete.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from loadgen.errors import ExperimentError, UserError
from loadgen.records import (
    Block,
    BlockEnd,
    Experiment,
    ExperimentManifest,
    Health,
    Manifest,
    Plan,
    Sample,
    Scrape,
    ServerFacts,
    StageMark,
)

R = TypeVar("R", bound=msgspec.Struct)

LINES: dict[type[msgspec.Struct], str] = {
    Sample: "samples.jsonl",
    Scrape: "scrapes.jsonl",
    Health: "health.jsonl",
    StageMark: "marks.jsonl",
}
ONCE: dict[type[msgspec.Struct], str] = {
    ExperimentManifest: "experiment.json",
    Plan: "plan.json",
    Manifest: "manifest.json",
    ServerFacts: "facts.json",
    BlockEnd: "end.json",
}


def write_once(folder: Path, record: msgspec.Struct) -> Path:
    """Writes `record` as its one JSON file in `folder`, whole or not at all.

    Raises ExperimentError if the disk refuses (full, read-only).
    """
    path = folder / ONCE[type(record)]
    part = path.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):  # where the folder itself cannot be, there is nothing to take away
            part.unlink(missing_ok=True)
        raise ExperimentError(
            f"{path}: cannot write: {error.strerror}; free some space or choose another --out"
        ) from error
    return path


class BlockWriter:
    """Appends a block's lines. One buffered file per kind of record; `flush` after each stage and on a timer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._encoder = msgspec.json.Encoder()
        self._files: dict[type[msgspec.Struct], BinaryIO] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for kind, name in LINES.items():
                self._files[kind] = (folder / name).open("ab")
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> ExperimentError:
        return ExperimentError(
            f"{self.folder}: cannot write: {error.strerror}; what was written before is kept: "
            "free some space or choose another --out"
        )

    def append(self, record: Sample | Scrape | Health | StageMark) -> None:
        """Adds one line. Raises ExperimentError if the disk refuses."""
        try:
            self._files[type(record)].write(self._encoder.encode(record) + b"\n")
        except OSError as error:
            raise self._refused(error) from error

    def flush(self) -> None:
        """Hands what is buffered to the operating system."""
        try:
            for file in self._files.values():
                file.flush()
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Flushes and closes; safe to call twice."""
        files, self._files = self._files, {}
        failure: OSError | None = None
        for file in files.values():
            try:
                file.close()
            except OSError as error:
                failure = error
        if failure is not None:
            raise self._refused(failure) from failure


def block_folder(root: Path, order: int, arm: str) -> Path:
    """Where the block at position `order` of the experiment is to lie: a folder that is not there yet."""
    folder = root / "blocks" / f"{order:03d}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', arm)}"
    name, turn = folder.name, 1
    while folder.exists():
        turn += 1
        folder = folder.with_name(f"{name}-again-{turn}")
    return folder


def read_once(folder: Path, kind: type[R]) -> R | None:
    """The record of `kind` in `folder`; None if it was never written. Raises UserError if it is damaged."""
    path = folder / ONCE[kind]
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"{path}: not a loadgen {kind.__name__}: {error}") from error


def read_lines(folder: Path, kind: type[R]) -> Iterator[R]:
    """The records of one kind in `folder`, in the order of arrival. A last line cut off by a crash is left out."""
    path = folder / LINES[kind]
    if not path.is_file():
        return
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UserError(f"{path}: line {number}: not a loadgen {kind.__name__}: {error}") from error


def read_block(folder: Path) -> Block | None:
    """A block as far as it got; None if it never got its manifest."""
    manifest = read_once(folder, Manifest)
    if manifest is None:
        return None
    return Block(
        manifest=manifest,
        facts=read_once(folder, ServerFacts) or ServerFacts(engine="unknown"),
        marks=tuple(read_lines(folder, StageMark)),
        samples=tuple(read_lines(folder, Sample)),
        scrapes=tuple(read_lines(folder, Scrape)),
        health=tuple(read_lines(folder, Health)),
        end=read_once(folder, BlockEnd),
    )


def read_experiment(root: Path) -> Experiment:
    """A run directory, whole. Raises UserError if `root` is not one."""
    manifest = read_once(root, ExperimentManifest)
    if manifest is None:
        raise UserError(f"{root}: not a run directory: no {ONCE[ExperimentManifest]} in it")
    arms = range(len(manifest.arms))
    if not arms or any(number not in arms for number in manifest.order):
        path = root / ONCE[ExperimentManifest]
        raise UserError(f"{path}: order: should be of numbers of its {len(arms)} arms, from 0; the file was changed")
    folders = sorted(path for path in (root / "blocks").glob("*") if path.is_dir())
    blocks = tuple(block for block in map(read_block, folders) if block is not None)
    return Experiment(manifest=manifest, blocks=blocks, path=str(root))
