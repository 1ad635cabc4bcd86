"""Every kept input through its target: what the fuzzer once found stays fixed. Needs no fuzzer."""

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
READERS = sorted(program.stem.removeprefix("fuzz_") for program in HERE.glob("fuzz_*.py"))
INPUTS = [
    pytest.param(reader, path, id=f"{reader}-{folder}-{path.name}")
    for reader in READERS
    for folder in ("corpus", "findings")
    for path in sorted((HERE / folder / reader).glob("*"))
]


@pytest.mark.parametrize(("reader", "path"), INPUTS)
def test_kept_input(reader: str, path: Path) -> None:
    importlib.import_module(f"fuzz_{reader}").one_input(path.read_bytes())


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_has_a_corpus(reader: str) -> None:
    assert any((HERE / "corpus" / reader).iterdir())
