"""OpenAI batch files: JSON lines of requests (input), of answers (output), or both, as several sources.

A batch has no arrivals: all requests stand at 0 s, for a closed loop. Token counts are in the answers; answers that
failed, and requests without an answer, are dropped and counted. Requests alone are estimated: input tokens from the
characters of their text, output tokens from what they allow. Text is measured and forgotten.
Source: the Batch API's reference; vLLM's run-batch reads and writes the same.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadgen.traces.keys import line_has
from loadgen.traces.rows import About, Dropped, Format, Head, Item, Row, Source
from loadgen.traces.sources import objects
from loadgen.traces.turns import required_id
from loadgen.traces.values import CHARACTERS_PER_TOKEN, Place, estimated_tokens, name, tokens

PROMPTS = ("messages", "prompt", "input", "instructions", "tools")
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
CLOSED = "a batch has no arrivals: all requests stand at 0 s; send them in a closed loop"


def recognises(head: Head) -> bool:
    """True if the file's first line is a request or an answer of a batch."""
    return line_has(head, "custom_id") and (line_has(head, "url", "body") or line_has(head, "response", "error"))


def rows(source: Source) -> Iterator[Item]:
    """The answers, then the requests that none of them answers. Raises UserError at the first malformed row."""
    yield About(note=CLOSED)
    answered: set[str] = set()
    answers, requests = _told_apart(source.paths)
    for path in answers:
        for line, row in objects(path):
            place = Place(path, line)
            answered.add(required_id(row.get("custom_id"), place, "custom_id"))
            yield _answer(row, place)
    estimated = 0
    for path in requests:
        for line, row in objects(path):
            place = Place(path, line)
            key = required_id(row.get("custom_id"), place, "custom_id")
            if answers:
                yield from [] if key in answered else [Dropped("no answer")]
                continue
            item = _request(row, place)
            estimated += isinstance(item, Row)
            yield item
    if estimated:
        yield About(
            note=f"tokens of {estimated:,} rows are estimated: their text at {CHARACTERS_PER_TOKEN} characters a "
            "token, outputs as long as they may be; the batch's output file has the counts"
        )


def _told_apart(paths: tuple[Path, ...]) -> tuple[list[Path], list[Path]]:
    """The files of answers and those of requests, each by its first row."""
    answers: list[Path] = []
    requests: list[Path] = []
    for path in paths:
        _, first = next(objects(path), (1, {}))
        (answers if "response" in first or "error" in first else requests).append(path)
    return answers, requests


def _answer(row: dict[str, Any], place: Place) -> Row | Dropped:
    response = row.get("response")
    if row.get("error") is not None or response is None:
        return Dropped("failed")
    if not isinstance(response, dict):
        raise place.wrong("response", response, "an object with status_code and body")
    if response.get("status_code", 200) != 200:
        return Dropped("failed")
    body = response.get("body")
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(usage, dict):
        return Dropped("no usage in the answer")
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Row(
        at_ns=0,
        input_tokens=_count(usage, ("prompt_tokens", "input_tokens"), place),
        output_tokens=_count(usage, ("completion_tokens", "output_tokens"), place),
        cached_tokens=None if cached is None else tokens(cached, place, "response.body.usage: cached_tokens"),
        kind=name(body.get("model"), place, "response.body.model"),
    )


def _count(usage: dict[str, Any], keys: tuple[str, str], place: Place) -> int:
    """0 where an endpoint does not count it: embeddings have no completion."""
    given = next((key for key in keys if usage.get(key) is not None), None)
    return 0 if given is None else tokens(usage[given], place, f"response.body.usage.{given}")


def _request(row: dict[str, Any], place: Place) -> Row | Dropped:
    body = row.get("body")
    if not isinstance(body, dict):
        raise place.wrong("body", body, "the body of a request")
    limit = next((key for key in LIMITS if body.get(key) is not None), None)
    if limit is None:
        return Dropped(f"no {LIMITS[1]} to estimate the output from")
    return Row(
        at_ns=0,
        input_tokens=estimated_tokens(*(body.get(key) for key in PROMPTS)),
        output_tokens=tokens(body[limit], place, f"body.{limit}"),
        kind=name(body.get("model"), place, "body.model"),
    )


FORMAT = Format(
    name="openai_batch",
    label="JSON lines of a batch: custom_id with response (output), or with url and body (input: estimated); or both",
    recognises=recognises,
    rows=rows,
)
