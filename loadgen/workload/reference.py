"""What is written from the scenario model: the editors' JSON Schema and the key tables of `docs/scenarios.md`.

`python -m loadgen.workload.reference` in a checkout writes both; a test holds them current.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from loadgen.workload.fields import Keys, Quantiles, Range
from loadgen.workload.grid import Grid
from loadgen.workload.model import Bursts, Limit, Scenario, SloKeys, Stage, Workload
from loadgen.workload.source import TraceSource
from loadgen.workload.traffic import Class, Families, Sessions, SharedPrefix

SCHEMA = Path("scenarios/scenario.schema.json")
PAGE = Path("docs/scenarios.md")
BEGIN, END = "<!-- keys: written by loadgen.workload.reference -->", "<!-- end of keys -->"

SECTIONS: tuple[tuple[str, type[Keys]], ...] = (
    ("The file", Scenario),
    ("`workload`", Workload),
    ("`stages`: each", Stage),
    ("`input_tokens`, `output_tokens`: a number, or", Range),
    ("... or", Quantiles),
    ("`shared_prefix`", SharedPrefix),
    ("`families`", Families),
    ("`sessions`", Sessions),
    ("`workload.mix`: each", Class),
    ("`workload.trace`", TraceSource),
    ("`bursts`", Bursts),
    ("`grid`", Grid),
    ("`limit`", Limit),
    ("`slo`", SloKeys),
)


def json_schema() -> str:
    """The JSON Schema of a scenario file."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= Scenario.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def key_tables() -> str:
    """One Markdown table per mapping of the file: key, default, meaning."""
    return "\n".join(line for title, model in SECTIONS for line in _section(title, model))


def _section(title: str, model: type[Keys]) -> Iterator[str]:
    yield f"### {title}\n"
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {_default(field.default)} | {(field.description or '').replace('|', chr(92) + '|')} |"
    yield ""


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    return "" if value in (None, "", (), SloKeys()) else f"`{value}`"


def write(root: Path) -> None:
    """Writes the schema, and the tables into their place in the page."""
    (root / SCHEMA).write_text(json_schema(), encoding="utf-8")
    page = root / PAGE
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{key_tables()}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
