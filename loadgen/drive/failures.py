"""What counts as a failed request, and how that is said: pure."""

import email.utils
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from loadgen.drive.connection import CutOff
from loadgen.drive.exchange import EVENT_STREAM, Exchange
from loadgen.drive.stream import Reading
from loadgen.records import Failure, FailureKind

DETAIL_CHARS = 200
PUBLIC_HEADERS = frozenset({"accept", "content-type", "user-agent", "host"})


class Stopped(httpx.TransportError):
    """The request was in flight when everything was told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expects:
    """What a good answer must have, by what the engine does.

    `done_required`: the stream must end with `[DONE]`; without it a finish reason will do. `exact_output`: requests
    force their output length, so that fewer tokens are a failure.
    """

    done_required: bool = True
    exact_output: bool = True


def secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values of `headers` that must not be quoted, whole and without their scheme ("Bearer")."""
    values = {value.strip() for name, value in headers.items() if name.lower() not in PUBLIC_HEADERS}
    values |= {value.partition(" ")[2].strip() for value in values}
    return tuple(sorted((value for value in values if value), key=len, reverse=True))


def judge(exchange: Exchange, planned_output_tokens: int, expects: Expects, secrets: tuple[str, ...]) -> Failure | None:
    """Why this request failed, by the first reason that holds; None if it ended as a good one does.

    `secrets` are blotted out of what is quoted.
    """
    found = _on_the_wire(exchange) or _in_the_stream(exchange.reading, planned_output_tokens, expects)
    return None if found is None else Failure(kind=found[0], detail=one_line(found[1], secrets))


def retry_after_s(value: str | None) -> float | None:
    """Seconds of a Retry-After header (RFC 9110, 10.2.3), given as a number or as a date; None if it is neither.

    Never negative, never infinite: it is written as JSON.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        pass
    else:
        return seconds if 0 <= seconds < math.inf else None
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # no date, or a year or a zone of twenty digits
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _on_the_wire(exchange: Exchange) -> tuple[FailureKind, str] | None:
    error, status = exchange.error, exchange.status
    if isinstance(error, Stopped):
        return "stopped", "in flight when the run was stopped"
    if status is not None and status != 200:
        return "status", f"HTTP {status}: {exchange.body_text()}"
    if exchange.reading.error is not None:
        return "server_error", exchange.reading.error
    if error is not None:
        return _kind(error), (str(error) or error.__class__.__name__) + _after(exchange.reading)
    encoding = exchange.headers.get("content-encoding", "identity")
    if encoding != "identity":
        return "protocol", f"content-encoding {encoding} although identity was asked for"
    if not exchange.is_stream:
        content_type = exchange.headers.get("content-type", "none")
        return (
            "protocol",
            f"content type {content_type} instead of {EVENT_STREAM}: {exchange.body_text()}",
        )
    return None


def _in_the_stream(reading: Reading, planned: int, expects: Expects) -> tuple[FailureKind, str] | None:
    if reading.malformed is not None:
        return "protocol", reading.malformed
    if not reading.done and (expects.done_required or reading.finish_reason is None):
        seen = "finish_reason " + (reading.finish_reason or "none")
        return "truncated", f"the stream ended without [DONE] ({seen}, {len(reading.events_s)} events with content)"
    got = reading.output_tokens
    if expects.exact_output and got is not None and got < planned:
        return "truncated", f"{got} of {planned} output tokens, finish_reason {reading.finish_reason or 'none'}"
    if got is None and not reading.events_s:
        return "truncated", "no event with content and no usage"
    return None


def _after(reading: Reading) -> str:
    events = len(reading.events_s)
    return f", after {events} events with content" if events else ""


def _kind(error: httpx.TransportError) -> FailureKind:
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError | httpx.ProxyError | httpx.UnsupportedProtocol):
        return "connect"
    if isinstance(error, httpx.TimeoutException):
        return "timeout"
    return "truncated" if isinstance(error, CutOff) else "protocol"


def one_line(detail: str, secrets: tuple[str, ...] = ()) -> str:
    """`detail` in one short line. Secrets are taken out before it is cut, so that no part of one stays."""
    for secret in secrets:
        detail = detail.replace(secret, "***")
    line = " ".join(detail.split())
    return line if len(line) <= DETAIL_CHARS else line[: DETAIL_CHARS - 1] + "…"
