"""What all fuzz programs share: instrumented imports, the fuzzer's options, where inputs lie, what a complaint may be.

A program here is `python tests/fuzz/fuzz_READER.py [libFuzzer options]`. Its `one_input(data)` is an ordinary function:
it returns, or raises where a property does not hold, and needs no fuzzer to be called.
"""

import random
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

HERE = Path(__file__).parent
WORKING = HERE.parents[1] / ".cache" / "fuzz"
INSTRUMENTED = ["loadgen", "yaml", "prometheus_client"]
NO_ATHERIS = (
    "atheris is not installed: `make fuzz` installs it where it has a wheel (CPython 3.11 to 3.13 on Linux x86-64); "
    "the kept inputs need none: pytest tests/fuzz"
)
COMPLAINT_CHARS = 1_000
MOST_COMPLAINTS = 1_000


def instrumented() -> AbstractContextManager[object]:
    """What the readers are imported under: instrumentation in a fuzz program, nothing in a test."""
    program = Path(getattr(sys.modules["__main__"], "__file__", None) or "").name
    if not program.startswith("fuzz_"):
        return nullcontext()
    try:
        import atheris
    except ImportError:
        sys.exit(NO_ATHERIS)
    return atheris.instrument_imports(include=INSTRUMENTED)


def fuzz(one_input: Callable[[bytes], None], reader: str, *, most_bytes: int) -> None:
    """Runs the fuzzer until an input fails or its options say so. New inputs are kept in .cache/fuzz, failing ones in
    findings/READER; an input that takes 2 s or 2 GiB fails."""
    import atheris

    folders = [WORKING / reader, HERE / "corpus" / reader, HERE / "findings" / reader]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"-max_len={most_bytes}", "-len_control=0", "-timeout=2", "-rss_limit_mb=2048", f"-artifact_prefix={folders[2]}/"]
    words = HERE / "dictionaries" / f"{reader}.dict"
    options += [f"-dict={words}"] if words.is_file() else []
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:], *map(str, folders)], one_input)
    atheris.Fuzz()


def cuts(data: bytes, most: int) -> Iterator[list[bytes]]:
    """Ways to cut `data` into pieces: whole, at places that its checksum picks, and byte by byte if it is short."""
    yield [data]
    pick = random.Random(zlib.crc32(data))
    for few in (2, 7, 40):
        at = sorted({0, len(data), *(pick.randrange(len(data) + 1) for _ in range(few))})
        yield [data[a:b] for a, b in zip(at, at[1:], strict=False)]
    if len(data) <= most:
        yield [data[n : n + 1] for n in range(len(data))]


def check_line(text: str, most: int = COMPLAINT_CHARS) -> None:
    """A message for a terminal: one line, not empty, not long, and of characters that can be written."""
    assert len(text.splitlines()) == 1, text[:2000]
    assert len(text) <= most, (len(text), text[:2000])
    text.encode()


def check_complaints(complaints: list[str] | tuple[str, ...]) -> None:
    """What a UserError holds: a line each."""
    assert 1 <= len(complaints) <= MOST_COMPLAINTS
    for complaint in complaints:
        check_line(complaint)
