"""Logs of gateways and observers that count tokens: LiteLLM, Langfuse, Cloudflare AI Gateway.

Each is recognised by its own keys and read as `mapped` does. Answers that no model gave (a cache of the gateway's, a
failure) are dropped and counted. Keys: LiteLLM's SpendLogs table and StandardLoggingPayload (docs.litellm.ai, logging
specification); Langfuse's export field reference (langfuse.com/docs); Cloudflare's API for AI Gateway logs.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from loadgen.traces.mapped import Counts, Keys, Log, mapped, value, whole
from loadgen.traces.records import Record, first_record, look
from loadgen.traces.rows import Format, Head, Item, Source
from loadgen.traces.values import Place

TRUE = frozenset(("true", "t", "1"))
SUCCESS = frozenset(("", "success"))


def having(*groups: tuple[str, ...]) -> Callable[[Head], bool]:
    """Recognises a log whose first record has all keys of one of `groups`."""

    def recognises(head: Head) -> bool:
        record = first_record(head)
        return record is not None and any(all(key in record for key in group) for group in groups)

    return recognises


def is_true(found: Any) -> bool:
    """True for true, also as a text of CSV."""
    return found is True or str(found).strip().lower() in TRUE


def _text(record: Record, *keys: str) -> str:
    found = value(record, keys)[1]
    return "" if found is None else str(found).strip().lower()


def _unfit_litellm(record: Record) -> str | None:
    if is_true(look(record, "cache_hit")):
        return "hit in the gateway's cache"
    return None if _text(record, "status") in SUCCESS else "failure"


def litellm_rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the log. Raises UserError at the first malformed one."""
    keys = Keys(
        t=("startTime",),
        end=("endTime",),
        inputs=("prompt_tokens",),
        outputs=("completion_tokens",),
        session=("session_id", "litellm_session_id", "trace_id"),
        kind=("model_group", "model"),
    )
    return mapped(source, Log(keys=keys, unfit=_unfit_litellm))


def _unfit_langfuse(record: Record) -> str | None:
    if _text(record, "type") not in {"", "generation"}:
        return "not a generation"
    return "failure" if _text(record, "level") == "error" else None


def _langfuse_counts(record: Record, place: Place) -> Counts:
    """Sums of the usage types with `input` and with `output` in their names, as Langfuse itself has it."""
    key, usage = value(record, ("usage_details", "usageDetails"))
    if isinstance(usage, str):
        try:
            usage = msgspec.json.decode(usage)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise place.wrong(key, usage, "a JSON object of token counts") from error
    if usage is None:
        return None, None
    if not isinstance(usage, Mapping):
        raise place.wrong(key, usage, "an object of token counts")
    return sum_of(usage, "input", place, key), sum_of(usage, "output", place, key)


def sum_of(usage: Mapping[str, Any], part: str, place: Place, key: str) -> int | None:
    """The sum of counts whose names have `part` in them; None if there are none."""
    counts = [whole(of, place, f"{key}.{name}") for name, of in usage.items() if part in name and of is not None]
    return sum(counts) if counts else None


def langfuse_rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the export. Raises UserError at the first malformed one."""
    keys = Keys(
        t=("start_time", "startTime"),
        end=("end_time", "endTime"),
        session=("session_id", "sessionId", "trace_id", "traceId"),
        kind=("provided_model_name", "model", "modelId"),
        id=("id",),
    )
    return mapped(source, Log(keys=keys, unfit=_unfit_langfuse, counts=_langfuse_counts))


def _unfit_cloudflare(record: Record) -> str | None:
    if is_true(look(record, "cached")):
        return "hit in the gateway's cache"
    success = look(record, "success")
    return None if success is None or is_true(success) else "failure"


def cloudflare_rows(source: Source) -> Iterator[Item]:
    """The rows in the order of the log. Raises UserError at the first malformed one."""
    keys = Keys(
        t=("created_at",),
        duration=("duration",),
        duration_s=0.001,
        inputs=("tokens_in",),
        outputs=("tokens_out",),
        kind=("model",),
    )
    return mapped(source, Log(keys=keys, unfit=_unfit_cloudflare))


LITELLM = Format(
    name="litellm",
    label="LiteLLM's SpendLogs (CSV or JSON) and StandardLoggingPayload: startTime, endTime, prompt_tokens, ...",
    recognises=having(("startTime", "endTime", "prompt_tokens", "completion_tokens")),
    rows=litellm_rows,
)
LANGFUSE = Format(
    name="langfuse",
    label="Langfuse's export of observations: start_time, end_time, usage_details, type",
    recognises=having(("start_time", "usage_details"), ("startTime", "usageDetails")),
    rows=langfuse_rows,
    notes=("token counts are the sums of Langfuse's usage types with input and with output in their names",),
)
CLOUDFLARE = Format(
    name="cloudflare",
    label="Cloudflare AI Gateway's logs: created_at, tokens_in, tokens_out, duration (ms)",
    recognises=having(("created_at", "tokens_in", "tokens_out")),
    rows=cloudflare_rows,
    notes=("created_at is taken as the request's arrival",),
)
