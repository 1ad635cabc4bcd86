"""What all fuzz programs share: instrumented imports, the fuzzer's options, where inputs lie, what a complaint may be.

A program here is `python tests/fuzz/fuzz_READER.py [libFuzzer options]`. Its `one_input(data)` is an ordinary function:
it returns, or raises where a property does not hold, and needs no fuzzer to be called.
"""

import itertools
import json
import random
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

HERE = Path(__file__).parent
WORKING = HERE.parents[1] / ".cache" / "fuzz"
INSTRUMENTED = ["loadgen", "yaml", "prometheus_client"]
NO_ATHERIS = (
    "atheris is not installed: `make fuzz` installs it where it has a wheel (CPython 3.11 to 3.14 on Linux x86-64); "
    "the kept inputs need none: pytest tests/fuzz"
)
OUTCOMES: list[Callable[[], None]] = []
COMPLAINT_CHARS = 1_000
VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 0.5, -0.0, 2**31, 2**63, 2**64, 10**30, 1e308, 5e-324, float("nan"), float("inf")),
    *("", "a", "0", "\0", "\ud800", "a\nb", "\x1b[0m", "é" * 300, [], {}, [[]], [None], {"a": {}}, {"": None}),
)
MOST_COMPLAINTS = 101  # and how many more there are


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


def fuzz(one_input: Callable[[bytes], None], reader: str, *, most_bytes: int, has_json: bool = False) -> None:
    """Runs the fuzzer until an input fails or its options say so. New inputs are kept in .cache/fuzz, failing ones in
    findings/READER; an input that takes 2 s or 2 GiB fails. `has_json`: half of the changes are made to JSON in it."""
    import atheris

    def changed(data: bytes, most: int, seed: int) -> bytes:
        pick = random.Random(seed)
        new = with_other_json(data, pick) if pick.random() < 0.5 else None
        return atheris.Mutate(data, most) if new is None or len(new) > most else new

    folders = [WORKING / reader, HERE / "corpus" / reader, HERE / "findings" / reader]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    options = ["-len_control=0", "-timeout=2", "-rss_limit_mb=2048", f"-artifact_prefix={folders[2]}/"]
    words = HERE / "dictionaries" / f"{reader}.dict"
    options += [f"-max_len={most_bytes}", *([f"-dict={words}"] if words.is_file() else [])]
    OUTCOMES.extend(_outcomes())
    mutator = {"custom_mutator": changed} if has_json else {}
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:], *map(str, folders)], one_input, **mutator)
    atheris.Fuzz()


def with_other_json(data: bytes, pick: random.Random) -> bytes | None:
    """`data` with one value of one line's JSON object replaced, doubled or taken out; None if it has no such line."""
    lines = data.split(b"\n")
    number = pick.choice([number for number, line in enumerate(lines) if b"{" in line] or [-1])
    before, brace, rest = lines[number].partition(b"{")
    try:
        record = json.loads(brace + rest)
    except (ValueError, RecursionError):
        return None
    place = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return None
        key = pick.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or pick.random() < 0.3:
            break
        place = place[key]
    other = pick.choice([*VALUES, place[key], [place[key]] * 3, place[pick.choice(keys)]])
    if pick.random() < 0.2:
        del place[key]
    else:
        place[key] = other
    lines[number] = before + json.dumps(record).encode()
    return b"\n".join(lines)


def outcome(*told: object) -> None:
    """Tells the fuzzer that this input came to this end: one that leads to a new end is kept as one that reaches new
    code is. Readers in C (JSON, HTTP) show no other sign of how far an input got. Digits and quotations do not count.
    """
    if OUTCOMES:
        text = re.sub(r"[0-9]+|'[^']*'|\S{40,}", "", repr(told)[:300])
        OUTCOMES[zlib.crc32(text.encode("utf-8", "replace")) % len(OUTCOMES)]()


def _outcomes(count: int = 2_048) -> list[Callable[[], None]]:
    """Functions that do nothing, each with coverage of its own."""
    import atheris

    made: dict[str, Callable[[], None]] = {}
    exec("".join(f"def outcome_{number}(): pass\n" for number in range(count)), made)
    return [atheris.instrument_func(made[f"outcome_{number}"]) for number in range(count)]


def cuts(data: bytes, most: int) -> Iterator[list[bytes]]:
    """Ways to cut `data` into pieces: whole, at places that its checksum picks, and byte by byte if it is short."""
    yield [data]
    pick = random.Random(zlib.crc32(data))
    for few in (2, 7, 40):
        at = sorted({0, len(data), *(pick.randrange(len(data) + 1) for _ in range(few))})
        yield [data[a:b] for a, b in itertools.pairwise(at)]
    if len(data) <= most:
        yield [data[n : n + 1] for n in range(len(data))]


def check_line(text: str, most: int = COMPLAINT_CHARS) -> None:
    """A message for a terminal: one line, not empty, not long, and of characters that can be written."""
    assert len(text.splitlines()) == 1, text[:2000]
    assert len(text) <= most, (len(text), text[:2000])
    text.encode()


def check_complaints(complaints: Sequence[str], most: int = MOST_COMPLAINTS) -> None:
    """What a UserError holds: a line each."""
    outcome(complaints[0].rpartition("/")[2])
    assert 1 <= len(complaints) <= most
    for complaint in complaints:
        check_line(complaint)
