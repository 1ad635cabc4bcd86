"""OpenTelemetry spans as OTLP JSON: what a collector's file exporter writes, one batch a line, or one document.

A span with token counts is a request. Names: those of the GenAI semantic conventions, old (`prompt_tokens`, as vLLM's
`llm_request` spans have them) and new (`input_tokens`), and OpenInference's. Session: `gen_ai.conversation.id`, else
the trace. Not requests, and counted: spans without tokens; spans of agents and tools, whose counts are sums of their
children's; and a span within another request's span, which is the same request seen by the server as well.

A span is written when it ends, its parent after it: requests are held in memory (some hundred bytes each) until the
files have been read, and then put in order. A request follows the request that is its parent span if that had ended,
else those of its session that had (see `chains`). Source: opentelemetry-proto, GenAI semantic conventions.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from loadgen.errors import UserError
from loadgen.traces.chains import Chains
from loadgen.traces.mapped import whole
from loadgen.traces.records import records
from loadgen.traces.rows import Dropped, Format, Head, Item, Row, Source
from loadgen.traces.sources import document
from loadgen.traces.values import Place, name

INPUTS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.usage.prompt_tokens",
    "llm.token_count.prompt",
)
OUTPUTS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.usage.completion_tokens",
    "llm.token_count.completion",
)
CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
)
SESSION = ("gen_ai.conversation.id", "session.id")
MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
OPERATIONS = frozenset((None, "chat", "text_completion", "generate_content", "completion"))
LATEST_NS = 2**63
FAILED = (2, "2", "STATUS_CODE_ERROR")


class _Request(NamedTuple):
    parent: str
    end_ns: int
    row: Row


def recognises(head: Head) -> bool:
    """True if the file begins with a batch of spans."""
    return head.text.lstrip().startswith("{") and '"resourceSpans"' in head.text[:4096]


def rows(source: Source) -> Iterator[Item]:
    """What is dropped, in the order of the files, and then the rows in order of time. Raises UserError."""
    requests: dict[str, _Request] = {}
    for path in source.paths:
        for place, span in _spans(path):
            found = _request(span, place)
            if isinstance(found, Dropped):
                yield found
            elif found.row.id in requests:
                yield Dropped("span seen twice")
            else:
                requests[str(found.row.id)] = found
    chains = Chains()
    for request in sorted(requests.values(), key=lambda one: one.row.at_ns):
        yield _linked(request, requests, chains)


def _linked(request: _Request, requests: Mapping[str, _Request], chains: Chains) -> Item:
    parent, row = requests.get(request.parent), request.row
    if parent is None:
        return chains.linked(row)
    if parent.end_ns > row.at_ns:
        return Dropped("within another request's span")
    linked = chains.linked(row)
    return msgspec.structs.replace(
        linked, session=row.session, after=(request.parent,), think_s=(row.at_ns - parent.end_ns) / 1e9
    )


def _spans(path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    for place, batch in _batches(path):
        for resource in _list(batch, "resourceSpans", place):
            for scope in (
                *_list(resource, "scopeSpans", place),
                *_list(resource, "instrumentationLibrarySpans", place),
            ):
                for span in _list(scope, "spans", place):
                    if not isinstance(span, dict):
                        raise place.wrong("spans", span, "a list of objects")
                    yield place, span


def _batches(path: Path) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """The lines of the file, or the file as one document where its first line is none."""
    try:
        first = next(records(path), None)
    except UserError:
        first = None
    if first is not None and "resourceSpans" in first[1]:
        yield from records(path)
        return
    whole_file = document(path)
    if not isinstance(whole_file, dict) or "resourceSpans" not in whole_file:
        raise UserError(f"{path}: resourceSpans: missing: should be OTLP JSON of spans")
    yield Place(path, 1), whole_file


def _list(value: Any, key: str, place: Place) -> list[Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(found, list | None):
        raise place.wrong(key, found, "a list")
    return found or []


def _request(span: dict[str, Any], place: Place) -> _Request | Dropped:
    attributes = _attributes(span, place)
    (input_key, input_tokens), (output_key, output_tokens) = _first(attributes, INPUTS), _first(attributes, OUTPUTS)
    if input_tokens is None and output_tokens is None:
        return Dropped("span without tokens")
    if attributes.get("gen_ai.operation.name") not in OPERATIONS:
        return Dropped("span of an agent or a tool")
    if _status(span) in FAILED:
        return Dropped("failure")
    if input_tokens is None or output_tokens is None:
        return Dropped("no token counts")
    at_ns, end_ns = _nanoseconds(span, "startTimeUnixNano", place), _nanoseconds(span, "endTimeUnixNano", place)
    if end_ns < at_ns:
        raise place.wrong("endTimeUnixNano", span["endTimeUnixNano"], "at or after startTimeUnixNano")
    cached_key, cached = _first(attributes, CACHED)
    model_key, model = _first(attributes, MODEL)
    session_key, session = _first(attributes, SESSION)
    row = Row(
        at_ns=at_ns,
        input_tokens=whole(input_tokens, place, input_key),
        output_tokens=whole(output_tokens, place, output_key),
        id=_id(span, "spanId", place),
        session=name(session, place, session_key) or _id(span, "traceId", place),
        cached_tokens=None if cached is None else whole(cached, place, cached_key),
        kind=name(model, place, model_key),
        duration_s=(end_ns - at_ns) / 1e9,
    )
    parent = span.get("parentSpanId")
    return _Request(parent if isinstance(parent, str) else "", end_ns, row)


def _attributes(span: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Attributes that are single values: whole numbers are texts in OTLP JSON."""
    found: dict[str, Any] = {}
    for pair in _list(span, "attributes", place):
        value = pair.get("value") if isinstance(pair, dict) else None
        if isinstance(value, dict) and isinstance(pair.get("key"), str):
            found[pair["key"]] = next(
                (value[kind] for kind in ("stringValue", "intValue", "doubleValue") if kind in value), None
            )
    return found


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, Any]:
    return next(((key, attributes[key]) for key in keys if attributes.get(key) not in (None, "")), (keys[0], None))


def _status(span: Mapping[str, Any]) -> Any:
    status = span.get("status")
    return status.get("code") if isinstance(status, dict) else None


def _nanoseconds(span: Mapping[str, Any], key: str, place: Place) -> int:
    found = span.get(key)
    number = int(found) if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 20 else found
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < LATEST_NS:
        raise place.wrong(key, found, "nanoseconds since 1970")
    return number


def _id(span: Mapping[str, Any], key: str, place: Place) -> str:
    found = name(span.get(key), place, key)
    if not found:
        raise place.missing(key)
    return found


FORMAT = Format(
    name="otlp",
    label='OTLP JSON of spans (a collector\'s file exporter): {"resourceSpans": [...]}, gen_ai attributes',
    recognises=recognises,
    rows=rows,
)
