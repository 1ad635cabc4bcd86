"""What a fault is, and what the values of switches may be."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from loadgen.emulator import rewrites
from loadgen.emulator.asgi import Plant
from loadgen.records import FailureKind

Where = Literal["response", "stream", "metrics", "wire", "process"]
Ends = FailureKind | Literal["ok"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a switch's VALUE is."""

    default: str
    should: str
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `ends`: how a request that meets it ends (`records.Failure.kind`, or ok); `says`: what its detail
    says, or what else a reader should know. `plant` is None where no single request meets it."""

    name: str
    where: Where
    sentence: str
    ends: Ends
    says: str
    plant: Plant | None = None
    value: Value | None = None


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError(text)
    return seconds


def _from(first: int, last: int = 10**9) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not first <= number <= last:
            raise ValueError(text)
        return number

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return read


def _content_type(text: str) -> str:
    if "/" not in text or not text.isascii() or not text.isprintable():
        raise ValueError(text)
    return text


EVENTS = Value(default="2", should="a whole number of events, from 1", read=_from(1))
COUNT = Value(default="4", should="a whole number, from 1", read=_from(1))
STATUS = Value(default="500", should="a status from 400 to 599", read=_from(400, 599))
BYTES = Value(default="1", should="a whole number of bytes, from 1", read=_from(1))
EXIT_CODE = Value(default="1", should="an exit code from 0 to 255", read=_from(0, 255))
TYPE = Value(default="text/html", should="a content type such as text/html", read=_content_type)
SHAPE = Value(default="vllm", should="vllm, openai or flat", read=_one_of(*rewrites.ERRORS))
REASONING = Value(
    default="reasoning_content",
    should="reasoning_content or reasoning",
    read=_one_of("reasoning_content", "reasoning"),
)


def within(default: str) -> Value:
    """Seconds, with their default."""
    return Value(default=default, should="seconds, from 0", read=_seconds)


def fault(where: Where, name: str, ends: Ends, sentence: str, says: str, **more: Any) -> Fault:
    """One row of a table."""
    return Fault(name=name, where=where, ends=ends, sentence=sentence, says=says, **more)
