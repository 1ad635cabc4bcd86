"""Compares with a file in tests/golden; LOADGEN_UPDATE_GOLDEN=1 writes the file instead."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"


def check(name: str, content: str) -> None:
    """Fails where `content` differs from the golden file of this name."""
    path = FOLDER / name
    if os.environ.get("LOADGEN_UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")
    assert content == path.read_text("utf-8"), f"{path} differs; if that is meant: LOADGEN_UPDATE_GOLDEN=1 make test"
