"""Options that several verbs share, and what they become."""

import math
import os
import re
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from loadgen.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number within bounds that is one: neither NaN, which passes every bound, nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


REACH = (
    click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Run directory [runs/SCENARIO-TIME]."),
    click.option(
        "--transport",
        type=click.Choice(["lean", "httpx"]),
        default="lean",
        show_default=True,
        help="lean: loadgen's own; httpx: stock, for HTTP proxies.",
    ),
    click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the bearer token."),
    click.option(
        "--connect-timeout",
        type=Finite(min=0, min_open=True),
        default=10.0,
        show_default=True,
        help="Seconds for a connection.",
    ),
    click.option(
        "--read-timeout",
        type=Finite(min=0, min_open=True),
        default=600.0,
        show_default=True,
        help="Seconds without a byte of an answer.",
    ),
    click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="CA bundle for https."),
    click.option("--insecure", is_flag=True, help="Do not verify the server's certificate."),
    click.option(
        "--scrape-interval",
        type=Finite(min=0.05),
        default=0.25,
        show_default=True,
        help="Seconds between readings of /metrics.",
    ),
    click.option(
        "--start-timeout",
        type=Finite(min=1),
        default=1800.0,
        show_default=True,
        help="Seconds until a server must be ready.",
    ),
)


def with_reach(function: F) -> F:
    """Adds the options of REACH."""
    for option in reversed(REACH):
        function = option(function)
    return function


def command_line() -> str:
    """The command as typed, less `--out`, so that it can be run again."""
    kept: list[str] = []
    words = iter(sys.argv[1:])
    for word in words:
        if word == "--out":
            next(words, None)
        elif not word.startswith("--out="):
            kept.append(word)
    return shlex.join(["loadgen", *kept])


def run_folder(out: Path | None, scenario: str) -> Path:
    """`out`, or a new folder under runs/ named after the scenario and the time."""
    if out is not None:
        return out
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', scenario)}-{datetime.now():%Y%m%d-%H%M%S}"
    folder, turn = Path("runs") / stem, 1
    while folder.exists():
        turn += 1
        folder = folder.with_name(f"{stem}-{turn}")
    return folder


def bearer(api_key_env: str | None) -> dict[str, str]:
    """The Authorization header from the environment. Raises UserError, which does not quote it, for a bad one."""
    if api_key_env is None:
        return {}
    token = os.environ.get(api_key_env, "").strip()
    if not token:
        raise UserError(f"--api-key-env: {api_key_env}: not set in the environment; export {api_key_env}=... first")
    if not token.isascii() or not token.isprintable():
        raise UserError(f"--api-key-env: {api_key_env}: holds characters that a header cannot carry")
    return {"Authorization": f"Bearer {token}"}


def pairs(items: tuple[str, ...], option: str, example: str = "max-num-seqs=8") -> dict[str, str]:
    """`KEY=VALUE` items as a dict. Raises UserError for an item without `=`."""
    bad = [item for item in items if "=" not in item or item.startswith("=")]
    if bad:
        raise UserError(*(f"{option}: {item}: needs KEY=VALUE, such as {option} {example}" for item in bad))
    return {key.lstrip("-"): value for key, value in (item.split("=", 1) for item in items)}
