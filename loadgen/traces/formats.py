"""The table of formats, and which one a file is of.

A format is one file in this room and one line here. Order matters only where a file could be of two: the first that
recognises it is taken.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from loadgen.errors import UserError
from loadgen.traces import (
    azure,
    bailian,
    burstgpt,
    canonical,
    copilot,
    gateways,
    generic,
    metrics,
    mooncake,
    nginx,
    openai_batch,
    otlp,
    servegen,
    sglang_requests,
    tracelab,
    tracelab_csv,
    vidur,
    vllm_arrivals,
    weka,
)
from loadgen.traces.rows import Format, Head, shown
from loadgen.traces.sources import head

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        canonical.FORMAT,
        azure.FORMAT,
        burstgpt.FORMAT,
        mooncake.FORMAT,
        bailian.FORMAT,
        weka.FORMAT,
        tracelab.FORMAT,
        tracelab_csv.FORMAT,
        copilot.FORMAT,
        openai_batch.FORMAT,
        servegen.FORMAT,
        vidur.FORMAT,
        metrics.FORMAT,
        sglang_requests.FORMAT,
        vllm_arrivals.FORMAT,
        otlp.FORMAT,
        gateways.LITELLM,
        gateways.LANGFUSE,
        gateways.CLOUDFLARE,
        nginx.FORMAT,
        generic.FORMAT,
    )
}


def chosen(paths: Sequence[Path], name: str = "auto") -> Format:
    """The format called `name`, or the one that recognises every one of `paths`. Raises UserError if there is none."""
    if name != "auto":
        if name not in FORMATS:
            raise UserError(f"{name}: no such trace format; should be auto, {', '.join(FORMATS)}")
        _folders(paths, FORMATS[name])
        return FORMATS[name]
    found = {format.name: (path, format) for path in paths for format in (recognised(head(path)),)}
    if len(found) > 1:
        told = ", ".join(f"{path} is {name}" for name, (path, _) in found.items())
        raise UserError(f"{told}; should be of one format: import them one by one, or say --format")
    [(_, format)] = found.values()
    _folders(paths, format)
    return format


def recognised(head: Head) -> Format:
    """The first format that recognises a file. Raises UserError if none does."""
    known = f"should be one of {', '.join(FORMATS)}, or name its format, or say with --map which key is what"
    if not head.lines:
        raise UserError(f"{head.path}: empty; should be a trace; {known}")
    if "\ufffd" in head.text or "\0" in head.text:
        raise UserError(f"{head.path}: not text; should be a trace in UTF-8; {known}")
    for format in FORMATS.values():
        if format.recognises(head):
            return format
    raise UserError(f"{head.path}:1: {shown(head.lines[0])}: no known trace format; {known}")


def check_options(format: Format, options: Mapping[str, str]) -> None:
    """Raises UserError for an option that the format does not have."""
    for key in options:
        if key not in format.options:
            has = f"should be one of {', '.join(format.options)}" if format.options else "it has none"
            raise UserError(f"--option {key}: format {format.name} has no such option; {has}")


def _folders(paths: Sequence[Path], format: Format) -> None:
    for path in paths:
        if path.is_dir() and not format.folders:
            raise UserError(f"{path}: a folder; format {format.name} is read from files: should be a file")
