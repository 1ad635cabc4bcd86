"""SGLang's own logs of requests, as JSON lines of either kind.

`--log-requests --log-requests-format json`: `request.received` and `request.finished`, joined by rid; arrival is the
first one's time (local, without a zone), or the second's less `e2e_latency`. `--export-metrics-to-file`: a line per
request; arrival is `request_received_ts`, else `request_finished_ts` less `e2e_latency`. Only counts, times and ids
are taken: what `obj`, `request_parameters` and `out.text` hold is never looked at. Source: SGLang 0.5
`srt/utils/log_utils.py`, `srt/observability/request_metrics_exporter.py`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadgen.traces.instants import stamp_ns
from loadgen.traces.mapped import count
from loadgen.traces.rows import About, Dropped, Format, Head, Item, Row, Source
from loadgen.traces.sources import first_object, objects
from loadgen.traces.values import Place, number

RECEIVED, FINISHED = "request.received", "request.finished"


def recognises(head: Head) -> bool:
    """True if the first line is one of either kind."""
    record = first_object(head)
    if record is None:
        return False
    return record.get("event") in (RECEIVED, FINISHED) or {"request_parameters", "prompt_tokens"} <= set(record)


class _Reading:
    """Remembers the requests that are under way: when each arrived."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.unseen = 0

    def items(self, record: Mapping[str, Any], place: Place) -> Iterator[Item]:
        event = record.get("event")
        if event == RECEIVED:
            self.received[str(record.get("rid"))] = _stamp_ns(record, place)
        elif event == FINISHED:
            yield from self._finished(record, place)
        elif "request_parameters" in record:
            yield _exported(record, place)
        else:
            raise place.wrong("event", event, f"{RECEIVED} or {FINISHED}")

    def _finished(self, record: Mapping[str, Any], place: Place) -> Iterator[Item]:
        received_ns = self.received.pop(str(record.get("rid")), None)
        end_ns, out = _stamp_ns(record, place), record.get("out")
        for one in out if isinstance(out, list) else [out]:
            meta = one.get("meta_info") if isinstance(one, dict) else None
            if not isinstance(meta, dict):
                yield Dropped("no token counts")
                continue
            duration_s = _seconds(meta, "e2e_latency", place)
            if received_ns is None:
                self.unseen += 1
                yield _row(meta, place, end_ns - round((duration_s or 0.0) * 1e9), duration_s)
            else:
                yield _row(meta, place, received_ns, duration_s or max(0.0, (end_ns - received_ns) / 1e9))

    def rest(self) -> Iterator[Item]:
        """What the log leaves open at its end."""
        for _ in self.received:
            yield Dropped("never finished")
        if self.unseen:
            yield About(
                note=f"{self.unseen:,} requests began before the log: their arrival is their end less e2e_latency"
            )


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of their ends. Raises UserError at the first malformed line."""
    reading = _Reading()
    for path in source.paths:
        yield from _lines(path, reading)
    yield from reading.rest()


def _lines(path: Path, reading: _Reading) -> Iterator[Item]:
    for line, record in objects(path):
        yield from reading.items(record, Place(path, line))


def _exported(record: Mapping[str, Any], place: Place) -> Item:
    duration_s = _seconds(record, "e2e_latency", place)
    at_s = _seconds(record, "request_received_ts", place)
    if at_s is None:
        end_s = _seconds(record, "request_finished_ts", place)
        if end_s is None or duration_s is None:
            raise place.wrong("request_received_ts", None, "given, or request_finished_ts and e2e_latency")
        at_s = end_s - duration_s
    return _row(record, place, round(at_s * 1e9), duration_s)


def _row(meta: Mapping[str, Any], place: Place, at_ns: int, duration_s: float | None) -> Item:
    finish = meta.get("finish_reason")
    if isinstance(finish, dict) and finish.get("type") == "abort":
        return Dropped("aborted")
    input_tokens = count(meta, ("prompt_tokens",), place)
    output_tokens = count(meta, ("completion_tokens",), place)
    if input_tokens is None or output_tokens is None:
        return Dropped("no token counts")
    cached_tokens = count(meta, ("cached_tokens",), place)
    return Row(at_ns, input_tokens, output_tokens, cached_tokens=cached_tokens, duration_s=duration_s)


def _stamp_ns(record: Mapping[str, Any], place: Place) -> int:
    stamp = record.get("timestamp")
    try:
        return stamp_ns(stamp if isinstance(stamp, str) else "")
    except ValueError as error:
        raise place.wrong("timestamp", stamp, str(error)) from error


def _seconds(record: Mapping[str, Any], key: str, place: Place) -> float | None:
    found = record.get(key)
    return None if found is None else float(number(found, place, key, "seconds, 0 or more"))


FORMAT = Format(
    name="sglang",
    label="SGLang's request log (--log-requests-format json) and its --export-metrics-to-file lines",
    recognises=recognises,
    rows=rows,
)
