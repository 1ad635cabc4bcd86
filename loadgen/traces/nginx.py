"""nginx's access log as JSON lines, which knows bytes and no tokens: both lengths are estimated, and rows marked so.

A line is written when the answer has ended, so a request's arrival is `msec` (or `time_iso8601`, whole seconds) less
`request_time`. Prompts: `content_length`, else `request_length` less headers, over bytes per token. Answers:
`body_bytes_sent`, else `bytes_sent`, over bytes per event of a stream, for a stream is mostly its framing.
Source: nginx's ngx_http_log_module and ngx_http_core_module; the keys are those that log_format gave its variables'
names.
"""

from collections.abc import Iterator, Mapping

from loadgen.traces.gateways import having
from loadgen.traces.mapped import Counts, Keys, Log, count, mapped, value
from loadgen.traces.options import choice, number, whole
from loadgen.traces.records import Record
from loadgen.traces.rows import About, Format, Item, Source
from loadgen.traces.values import Place

BYTES_PER_TOKEN = 4.0
BYTES_PER_EVENT = 230.0  # vLLM 0.32, a short model name: 217 of a chat, 238 of a completion
HEADER_BYTES = 400
KIND = "estimated"
LLM_PATHS = ("/completions", "/responses", "/messages", "/generate")

OPTIONS = {
    "bytes_per_token": f"of a prompt's body, and of answers that are no streams [{BYTES_PER_TOKEN:g}]",
    "bytes_per_event": f"of a streamed answer: one event is one token [{BYTES_PER_EVENT:g}]",
    "header_bytes": f"of a request, where the log has no content_length [{HEADER_BYTES}]",
    "stream": "yes or no: are answers streams of events [yes]",
}


def _unfit(record: Record) -> str | None:
    status = value(record, ("status",))[1]
    if status is not None and not str(status).startswith("2"):
        return "failure"
    where = value(record, ("request_uri", "uri", "request"))[1]
    return None if where is None or any(path in str(where) for path in LLM_PATHS) else "not a request to an LLM"


class _Estimate:
    def __init__(self, options: Mapping[str, str]) -> None:
        self.bytes_per_token = number(options, "bytes_per_token", BYTES_PER_TOKEN)
        stream = choice(options, "stream", "yes", ("yes", "no")) == "yes"
        self.bytes_per_event = number(options, "bytes_per_event", BYTES_PER_EVENT) if stream else self.bytes_per_token
        self.header_bytes = whole(options, "header_bytes", HEADER_BYTES)

    def counts(self, record: Record, place: Place) -> Counts:
        body_bytes = count(record, ("content_length",), place)
        if body_bytes is None:
            whole_bytes = count(record, ("request_length",), place)
            body_bytes = None if whole_bytes is None else max(1, whole_bytes - self.header_bytes)
        sent_bytes = count(record, ("body_bytes_sent", "bytes_sent"), place)
        return _tokens(body_bytes, self.bytes_per_token), _tokens(sent_bytes, self.bytes_per_event)

    @property
    def note(self) -> str:
        return (
            f"tokens are estimated from bytes: {self.bytes_per_token:g} per token of a prompt, "
            f"{self.bytes_per_event:g} per token of an answer, {self.header_bytes} of headers where the log counts "
            "them: a rough guess that --option bytes_per_token=..., bytes_per_event=... can better"
        )


def _tokens(found_bytes: int | None, bytes_per_token: float) -> int | None:
    if found_bytes is None:
        return None
    return max(1, round(found_bytes / bytes_per_token)) if found_bytes else 0


def rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the log. Raises UserError at the first malformed one."""
    estimate = _Estimate(source.options)
    yield About(note=estimate.note)
    keys = Keys(t=("msec", "time_iso8601"), duration=("request_time",), t_ends=True)
    yield from mapped(source, Log(keys=keys, unfit=_unfit, counts=estimate.counts, kind=KIND))


FORMAT = Format(
    name="nginx",
    label="nginx's access log as JSON lines: msec or time_iso8601, request_length, bytes_sent, request_time",
    recognises=having(
        *(
            (when, request, answer)
            for when in ("msec", "time_iso8601")
            for request in ("request_length", "content_length")
            for answer in ("bytes_sent", "body_bytes_sent")
        )
    ),
    rows=rows,
    options=OPTIONS,
)
