"""What is written from the profile model and the flags: the key and flag tables of `docs/emulator.md`.

`python -m loadgen.emulator.reference` in a checkout writes them; a test holds them current.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from loadgen.emulator.arm import FLAGS
from loadgen.emulator.profile import SECTIONS, Keys

PAGE = Path("docs/emulator.md")
BEGIN, END = "<!-- tables: written by loadgen.emulator.reference -->", "<!-- end of tables -->"


def tables() -> str:
    """Markdown: one table per mapping of a profile (key, default, meaning), one of the flags."""
    lines = [line for place, model in SECTIONS.items() for line in _section(place, model)]
    lines += ["### Flags of an arm\n", "| flag | a good value | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {flag.should} | {flag.meaning} |" for name, flag in FLAGS.items()]
    return "\n".join(lines) + "\n"


def _section(place: str, model: type[Keys]) -> Iterator[str]:
    yield f"### `{place}`\n" if place else "### The file\n"
    yield f"{(model.__doc__ or '').splitlines()[0]}\n"
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for name, field in model.model_fields.items():
        yield f"| `{name}` | {_default(field.get_default(call_default_factory=True))} | {field.description or ''} |"
    yield ""


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value == "" or isinstance(value, BaseModel | dict):
        return ""
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def write(root: Path) -> None:
    """Writes the tables into their place in the page."""
    page = root / PAGE
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{tables()}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
