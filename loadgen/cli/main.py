"""`loadgen VERB`: finds the verb's file when it is asked for, and turns errors into one clear line and an exit code."""

import io
import os
import sys
from collections.abc import Sequence

import click

from loadgen import __version__
from loadgen.cli.verbs import Verbs
from loadgen.errors import LoadgenError

VERBS = {
    "compare": "measure two arms with the same traffic and say whether the second pays",
    "run": "drive one server that already runs and report",
    "simulate": "compute what compare would measure, on a machine that a profile describes",
    "report": "render a run directory's report again",
    "plan": "print what a scenario will send, before anything is sent",
    "estimate": "say what a smaller KV cache could bring to a model and its traffic, before any server runs",
    "serve": "start one arm of an engine and say what it really is",
    "emulate": "serve an emulated engine whose truth is known",
    "facts": "say what a running server really is, as JSON",
    "calibrate": "fit an emulator's profile to a measured run, and say how well it fits",
    "trace": "make a log or a public trace a workload: import, validate, describe, sample, anonymise",
}


@click.group(cls=Verbs, verbs=VERBS, modules="loadgen.cli.", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loadgen")
def program() -> None:
    """Does KV-cache quantization pay on this engine, this GPU and this traffic? loadgen answers by measurement.

    Exit codes: 0 done, 2 a mistake in what was asked, 3 a run that could not be carried out.
    """


def _lenient_output() -> None:
    """A sign that the terminal's encoding lacks becomes a question mark: no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the verb in `argv` (default: the command line) and exits."""
    _lenient_output()
    try:
        code = program.main(args=argv, prog_name="loadgen", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(3)
    except LoadgenError as error:
        for line in str(error).splitlines() or ["failed"]:
            click.echo(f"loadgen: {line}" if not line.startswith("  ") else line, err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered must not fail again at exit
        sys.exit(0)
    except OSError as error:
        click.echo(f"loadgen: {error.filename or 'the system'}: {error.strerror or error}", err=True)
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)
