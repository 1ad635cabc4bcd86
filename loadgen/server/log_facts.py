"""What an engine's log tells about itself. Pure: text in, findings out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from re import Match, Pattern

from loadgen.engines.engine import Engine, LogPatterns
from loadgen.records import BackendSeen
from loadgen.server.log import Line, lines

_LONGEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Findings of one log; None or empty for what it does not tell.

    `settings`: what was asked for, from the dump of arguments. `config`: what the engine made of it, from the dump of
    its configuration. `capacity_is_assumed`: blocks were printed, and their size was not.
    """

    version: str | None = None
    device: str | None = None
    settings: dict[str, str]
    config: dict[str, str]
    effective_dtype: str | None = None
    capacity_tokens: int | None = None
    capacity_is_assumed: bool = False
    kv_memory_bytes: int | None = None
    backends: tuple[BackendSeen, ...] = ()
    telling: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()  # messages that a known-wrong combination asks for


def read_log(text: str, engine: Engine) -> LogFacts:
    """The findings of the last start that the log holds."""
    patterns = engine.log
    marks = [wrong.when_log_has for wrong in engine.known_wrong if wrong.when_log_has is not None]
    everything = list(lines(text))
    latest = _last_start(everything, patterns)
    messages = [line.text for line in latest]
    dumps = [message for message in messages if _first(patterns.settings, message)]
    asked = [dump for dump in dumps if "with config:" not in dump]
    config = _assignments(dump for dump in dumps if "with config:" in dump)
    settings = _assignments(asked)
    tokens, assumed, device = _capacity(messages, engine, settings)
    backends = _backends(messages, patterns)
    rocm = any(backend.name.startswith("ROCM") for backend in backends)
    return LogFacts(
        version=_group(patterns.version, [line.text for line in reversed(everything)]),
        # until 0.28 a CPU's capacity line says "GPU" too
        device="rocm" if rocm else config.get("device_config") or device,
        settings=settings,
        config=config,
        effective_dtype=_group(patterns.effective_dtype, messages),
        capacity_tokens=tokens,
        capacity_is_assumed=assumed,
        kv_memory_bytes=_gib(_group(patterns.kv_memory_gib, messages)),
        backends=backends,
        telling=tuple(dict.fromkeys(m[:_LONGEST] for m in messages if _first(patterns.telling, m))),
        marks=tuple(m[:_LONGEST] for m in messages if _first(marks, m)),
    )


def version_numbers(version: str | None) -> tuple[int, ...] | None:
    """ "0.8.5.post1+cpu" -> (0, 8, 5); None if there is no number in it."""
    if version is None:
        return None
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, found[1].split("."))) if found else None


def _last_start(everything: Sequence[Line], patterns: LogPatterns) -> Sequence[Line]:
    """A log that holds several starts (a container that came up again) counts from the last dump of arguments."""
    starts = [
        number
        for number, line in enumerate(everything)
        if _first(patterns.settings, line.text) and "with config:" not in line.text
    ]
    return everything[starts[-1] :] if starts else everything


def _first(patterns: Iterable[Pattern[str]], message: str) -> Match[str] | None:
    for pattern in patterns:
        if found := pattern.search(message):
            return found
    return None


def _group(patterns: Iterable[Pattern[str]], messages: Iterable[str]) -> str | None:
    known = tuple(patterns)
    for message in messages:
        if found := _first(known, message):
            return found[1]
    return None


def _gib(text: str | None) -> int | None:
    return None if text is None else int(float(text) * 2**30)


def _assignments(dumps: Iterable[str]) -> dict[str, str]:
    """`key=value` and `'key': value` pairs of a dump, quotes taken off; the first wins, nested ones come along."""
    pairs: dict[str, str] = {}
    for dump in dumps:
        for key, value in re.findall(r"\b(\w+)(?:=|['\"]: )['\"]?([^,'\"{}()\[\]]+)", dump):
            pairs.setdefault(key, value.strip())
    return pairs


def _capacity(messages: Sequence[str], engine: Engine, settings: dict[str, str]) -> tuple[int | None, bool, str | None]:
    """Tokens (the least where ranks differ), whether the block size had to be assumed, and the device."""
    found = [match for message in messages if (match := _first(engine.log.capacity_tokens, message))]
    if found:
        return min(int(match["count"].replace(",", "")) for match in found), False, _device(found[0]["device"])
    blocks = [match for message in messages if (match := _first(engine.log.capacity_blocks, message))]
    if not blocks:
        return None, False, None
    told = re.fullmatch(r"\d{1,9}", settings.get("block_size", ""))
    size = int(told[0]) if told else engine.default_block_tokens
    count = min(int(match["count"]) for match in blocks)
    return (None if size is None else count * size), told is None, _device(blocks[0]["device"])


def _device(word: str) -> str:
    return {"gpu": "cuda"}.get(word.lower(), word.lower())


def _backends(messages: Sequence[str], patterns: LogPatterns) -> tuple[BackendSeen, ...]:
    """Each backend once, in order of appearance, its own detail lines (kernel version, resolved types) added."""
    seen: dict[str, list[str]] = {}
    for message in messages:
        if found := _first(patterns.backends, message):
            seen.setdefault(_canonical(found["name"], patterns), [message])
    for name, pattern in patterns.backend_details.items():
        details = list(dict.fromkeys(message for message in messages if pattern.search(message)))
        if details and (name in seen or "resolved" in details[0]):
            seen.setdefault(name, []).extend(details)
    return tuple(BackendSeen(name=name, how="log", line=" | ".join(told)[:_LONGEST]) for name, told in seen.items())


def _canonical(name: str, patterns: LogPatterns) -> str:
    return patterns.backend_names.get(name.lower(), name)
