"""`loadgen emulate PROFILE --port N`: a server whose truth is known."""

from typing import Any

import click

from loadgen.emulator.options import OPTIONS, read


def _emulate(arguments: tuple[str, ...], **own: Any) -> int:
    from loadgen.emulator.serve import serve  # the server's libraries are loaded when one is, not for --help

    given = [
        part
        for option in OPTIONS
        if (value := own.get(option.name.replace("-", "_")))
        for text in (value if option.many else (value,))
        for part in (f"--{option.name}", text)
    ]
    serve(read([*given, *arguments]))
    return 0


command = click.Command(
    "emulate",
    callback=_emulate,
    params=[
        click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED, metavar="PROFILE [--FLAG VALUE ...]"),
        *(
            click.Option([f"--{option.name}"], metavar=option.metavar, multiple=option.many, help=option.what)
            for option in OPTIONS
            if option.name != "profile"
        ),
    ],
    context_settings={"ignore_unknown_options": True},
    help="""Serve an emulated engine until Ctrl-C: vLLM's endpoints, metrics and log, with a truth that is known.

    PROFILE is a name in deploy/emulator/profiles, such as h100-llama3.1-8b, or a YAML file.

    \b
    Further flags are the engine's, as vLLM takes them:
      --kv-cache-dtype fp8 --max-num-seqs 64 --no-enable-prefix-caching
    """,
)
