"""Reading a server's log, whatever wrapped it: containers, colours, JSON lines, many workers in one file."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_JSON_KEYS = ("log", "message", "msg", "textPayload", "line")
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_WRAPPERS = re.compile(
    "|".join(
        (
            rf"{_STAMP} std(?:out|err) [FP] ",  # container runtimes (CRI)
            rf"{_STAMP} (?:\| )?",  # docker logs -t, Loki
            r"[\w.-]+ +\| ",  # docker compose
            r"\[pod/[^\]]+\] ",  # kubectl logs --prefix
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.@-]+\[\d+\]: ",  # journald
            r"\((?:\w+ )?(?:\w+=\S+ )*pid=\d+(?:, ip=\S+)?\) ?",  # (EngineCore pid=7), (VllmWorker rank=3 pid=285), Ray
        )
    )
)
_HEADER = re.compile(
    r"\b(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? "
    r"\[?[\w./]+\.(?:py|cpp):\d+\] ?(?P<text>.*)$"
)

_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b: .+")
_PLAIN = re.compile(
    r"^\S+: error: .+|address already in use|CUDA out of memory|\bout of memory\b|No valid attention backend|"
    r"CUDA error|No such file or directory|is not supported by|^Killed\b|No module named",
    re.IGNORECASE,
)
_CONSEQUENCE = re.compile(r"Engine core initialization failed|Worker failed with error|EngineCore.* died|^SystemExit")
_LONGEST = 600
_LONGEST_MESSAGE = 65_536  # a dump of arguments has a few thousand characters


class Line(NamedTuple):
    """One message of a log. `level` is None where the line had no header (a traceback, a print)."""

    level: str | None
    text: str


def lines(text: str) -> Iterator[Line]:
    """The messages of a log, one by one, free of colours, container prefixes, JSON wrapping and log headers."""
    for raw in re.split(r"[\r\n]+", text):
        for line in _unwrapped(raw):
            yield _split(line)


def _unwrapped(raw: str) -> Iterable[str]:
    stripped = raw.strip()
    if not stripped.startswith("{"):
        return (raw,)
    try:
        record = msgspec.json.decode(stripped)  # takes no half of a surrogate pair, which could not be written
    except (msgspec.DecodeError, RecursionError):
        return (raw,)
    for key in _JSON_KEYS:
        if isinstance(record, dict) and isinstance(record.get(key), str):
            return re.split(r"[\r\n]+", record[key].rstrip())
    return (raw,)


def _split(line: str) -> Line:
    plain = _COLOUR.sub("", line[:_LONGEST_MESSAGE]).rstrip()
    header = _HEADER.search(plain)
    if header is not None:
        return Line(header["level"], header["text"])
    return Line(None, _without_wrappers(plain))


def _without_wrappers(line: str) -> str:
    start = 0
    while (wrapper := _WRAPPERS.match(line, start)) is not None:
        start = wrapper.end()
    return line[start:]


def telling_lines(text: str, most: int = 4) -> tuple[str, ...]:
    """The lines of a dead server's log that say why it died: causes first, never more than `most`.

    The last error line of each traceback, argument errors and system refusals. What merely follows from another error
    ("Engine core initialization failed") is kept only where nothing else was found; where no line looks like an error,
    the last lines that are not empty.
    """
    messages = [line.text.strip() for line in lines(text)]
    found = list(dict.fromkeys(_errors(messages)))
    causes = [message for message in found if not _CONSEQUENCE.search(message)]
    chosen = causes or found or [message for message in messages if message]
    return tuple(message if len(message) <= _LONGEST else message[:_LONGEST] + "…" for message in chosen[-most:])


def _errors(messages: list[str]) -> Iterator[str]:
    for number, message in enumerate(messages):
        if _EXCEPTION.match(message):
            following = messages[number + 1] if number + 1 < len(messages) else ""
            yield f"{message}: {following}" if following.startswith("Value error") else message
        elif _PLAIN.search(message) and not message.startswith("File "):
            yield message


def last_line(text: str) -> str:
    """The last message that says something, for a progress display; empty if there is none."""
    for line in reversed([line.text.strip() for line in lines(text)]):
        if re.search(r"\w", line):
            return line
    return ""
