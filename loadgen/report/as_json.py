"""The report for machines: the Report record itself. `docs/report.schema.json` describes it."""

import msgspec

from loadgen.records import Report


def render(report: Report) -> bytes:
    """UTF-8 JSON, indented by one; `schema` inside tells its version; reads back as an equal Report."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def schema() -> bytes:
    """JSON Schema of what `render` gives."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Report)), indent=1) + b"\n"
