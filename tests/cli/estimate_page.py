"""The examples of docs/estimate.md: read, and written anew by `python tests/cli/estimate_page.py`."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from loadgen.cli.estimate import command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "estimate.md"
EXAMPLE = re.compile(r"```console\n\$ loadgen estimate ([^\n]*)\n(.*?)```", re.DOTALL)


def shown(words: str) -> str:
    """What `loadgen estimate` prints, in the repository's root."""
    result = CliRunner().invoke(command, shlex.split(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return "".join(f"{line.rstrip()}\n" for line in result.output.strip().splitlines())


def written(page: str, show: Callable[[str], str] = shown) -> str:
    """The page with its examples' output as it is now."""
    return EXAMPLE.sub(lambda found: f"```console\n$ loadgen estimate {found[1]}\n{show(found[1])}```", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
