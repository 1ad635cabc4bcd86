"""A group of verbs that imports a verb's module only when that verb is run, so that `--help` stays quick."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class Verbs(click.Group):
    """`verbs`: name -> help, in the order of the list. The verb `x` is `command` of the module `modules` + `x`."""

    def __init__(self, *args: Any, verbs: Mapping[str, str], modules: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._verbs = verbs
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of the table."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command; None if there is no such verb."""
        if cmd_name not in self._verbs:
            return None
        name = f"{self._modules}{cmd_name}"
        command = importlib.import_module(name).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{name}.command is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table itself, without importing the verbs."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(self._verbs.items()))
