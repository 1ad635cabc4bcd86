"""`loadgen trace VERB`: the group; a verb's file is imported when it is asked for."""

import click

from loadgen.cli.verbs import Verbs

VERBS = {
    "import": "turn any log or public trace into loadgen's own form",
    "validate": "say, row by row, what cannot be right in a trace",
    "describe": "say what a trace is like: lengths, arrivals, reuse of prefixes",
    "sample": "make a trace smaller without changing what it is like",
    "anonymise": "make a trace that may be given away",
}


@click.group(
    name="trace",
    cls=Verbs,
    verbs=VERBS,
    modules="loadgen.cli.trace_",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Make production traffic a workload: import a trace, look at it, make it smaller, give it away."""
