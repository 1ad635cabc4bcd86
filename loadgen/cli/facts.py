"""`loadgen facts`: what a server that already runs really is, as JSON."""

import asyncio
import sys
from pathlib import Path

import click

from loadgen.cli.options import bearer


@click.command(name="facts")
@click.option("--url", help="The server's address, such as http://127.0.0.1:8000.")
@click.option(
    "--log", "log_path", type=click.Path(path_type=Path, allow_dash=True), help="Its log; - = standard input."
)
@click.option("--engine", default="vllm", show_default=True, help="Which engine it is.")
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable that holds the server's API key.")
def command(*, url: str | None, log_path: Path | None, engine: str, api_key_env: str | None) -> None:
    """Print a server's facts as JSON, read from its endpoints, its log, or both.

    vLLM tells its attention backend in the log alone.
    """
    from loadgen.engines.table import ENGINES
    from loadgen.errors import UserError

    if url is None and log_path is None:
        raise UserError("give --url, --log, or both")
    if engine not in ENGINES:
        raise UserError(f"--engine {engine}: unknown; known: {', '.join(ENGINES)}")
    text = None if log_path is None else _log_text(log_path)
    click.echo(asyncio.run(_read(url, text, engine, bearer(api_key_env))))


def _log_text(path: Path) -> str:
    from loadgen.errors import UserError

    if str(path) == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"--log {path}: cannot read: {error.strerror}") from error


async def _read(url: str | None, text: str | None, engine: str, headers: dict[str, str]) -> str:
    import msgspec

    from loadgen.engines.table import ENGINES
    from loadgen.server.address import is_loopback, server_root
    from loadgen.server.facts import read_facts
    from loadgen.server.host import host_facts

    local = url is not None and is_loopback(server_root(url))
    seen = await read_facts(
        url=url,
        log_text=text,
        engine=ENGINES[engine],
        host=await asyncio.to_thread(host_facts) if local else None,
        headers=headers,
    )
    return msgspec.json.format(msgspec.json.encode(seen), indent=2).decode()
