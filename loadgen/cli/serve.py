"""`loadgen serve ARM`: one arm, up until Ctrl-C."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadgen.cli.options import Finite, pairs

if TYPE_CHECKING:  # the records' library is loaded when a server is, not for --help
    from loadgen.records import ArmSpec, ServerFacts


@click.command(name="serve")
@click.argument("arm")
@click.option(
    "--engine", default="vllm", show_default=True, type=click.Choice(["vllm", "emulator"]), help="Which engine."
)
@click.option("--shared", type=click.Path(path_type=Path), help="File of flags [default: common.yaml of the engine].")
@click.option("--model", help="Folder or Hugging Face name of the model.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One more engine flag.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port on loopback [default: the first free from 8100].")
@click.option("--log", "log_path", type=click.Path(path_type=Path), help="Where the server's output goes, whole.")
@click.option(
    "--timeout",
    "timeout_s",
    default=600.0,
    type=Finite(min=1),
    show_default=True,
    help="Seconds to wait for readiness.",
)
def command(  # one parameter per option
    *,
    arm: str,
    engine: str,
    shared: Path | None,
    model: str | None,
    overrides: tuple[str, ...],
    port: int | None,
    log_path: Path | None,
    timeout_s: float,
) -> None:
    """Start one arm, show its facts, and keep it up until Ctrl-C.

    ARM is a name in deploy/ENGINE/arms or a YAML file of the engine's flags.
    """
    from loadgen.engines.table import ENGINES
    from loadgen.server import arms, launch

    found = ENGINES[engine]
    [spec] = arms.resolve(
        [arm],
        engine=found,
        shared=shared,
        overrides=pairs(overrides, "--set"),
        model=model,
        deploy=arms.find_deploy(found),
    )
    if spec.url is not None:
        raise click.UsageError(f"{arm}: a server that already runs needs no serving; see loadgen facts --url")
    serve = _serve(
        spec,
        port=port or launch.free_port(),
        log_path=log_path or Path("runs") / "servers" / f"{spec.name}.log",
        timeout_s=timeout_s,
    )
    try:
        asyncio.run(serve)
    except KeyboardInterrupt:
        click.echo(f"{spec.name}: stopped")


async def _serve(spec: "ArmSpec", *, port: int, log_path: Path, timeout_s: float) -> None:
    from rich.console import Console
    from rich.text import Text

    from loadgen.engines.table import ENGINES
    from loadgen.server import facts, host, launch

    console = Console(stderr=True)
    with console.status(f"{spec.name}: starting") as status:

        def show(elapsed_s: float, line: str) -> None:
            status.update(Text(f"{spec.name}: starting, {elapsed_s:.0f} s: {line[:100]}"), spinner="dots")

        launching = launch.launched(spec, port=port, log_path=log_path, on_wait=show, timeout_s=timeout_s)
        async with launching as server:
            seen = await facts.read_facts(
                url=server.url,
                log_text=launch.log_text(log_path),
                engine=ENGINES[spec.engine],
                argv=server.argv,
                ready_after_s=server.ready_after_s,
                host=await asyncio.to_thread(host.host_facts),
            )
            status.stop()
            click.echo(f"{spec.name}: {server.url} is ready after {server.ready_after_s:.0f} s; log: {log_path}")
            for line in described(seen):
                click.echo(f"  {line}")
            click.echo("Ctrl-C stops it.")
            while True:
                if ended := server.ended():
                    raise ended
                await asyncio.sleep(0.5)


def described(seen: "ServerFacts") -> list[str]:
    """The facts that decide a comparison, a line each, with how each was learned."""
    asked = f", asked for {seen.kv_dtype_asked}" if seen.kv_dtype_asked not in (None, seen.kv_dtype) else ""
    backends = ", ".join(f"{backend.name} ({backend.how})" for backend in seen.backends) or "unknown"
    capacity = "unknown" if seen.capacity_tokens is None else f"{seen.capacity_tokens:,} tokens"
    return [
        f"engine     {seen.engine} {seen.version or 'of unknown version'} on {seen.device or 'an unknown device'}",
        f"model      {seen.model or 'unknown'}, context {seen.max_model_len or 'unknown'}",
        f"KV cache   {seen.kv_dtype or 'unknown'} ({seen.kv_dtype_how}{asked}), {capacity} ({seen.capacity_how})",
        f"attention  {backends}",
        *(f"warning    {warning}" for warning in seen.warnings),
    ]
