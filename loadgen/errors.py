"""Everything that loadgen raises on purpose, and the exit code each one ends with.

    LoadgenError
    ├── UserError          exit 2   a mistake in what the user gave: file, key, value, what would be right
    └── ExperimentError    exit 3   the world did not play along; what was measured is kept
        └── ServerError             an engine did not start, died, or is not an LLM server

A failed request is none of these: it is a `Sample` with a `Failure`. Foreign errors are mapped at the door
where they enter.
"""

from collections.abc import Sequence


class LoadgenError(Exception):
    """Root of the tree; `str(error)` is what the user reads."""

    exit_code = 3


class UserError(LoadgenError):
    """The user can mend this by changing what they typed or wrote. One line, or one line per complaint."""

    exit_code = 2

    def __init__(self, *complaints: str) -> None:
        self.complaints: Sequence[str] = complaints
        super().__init__("\n".join(complaints))


class ExperimentError(LoadgenError):
    """The run could not be carried out as planned."""


class ServerError(ExperimentError):
    """An engine did not start, died, or does not speak the protocol. `telling` holds the log lines that say why."""

    def __init__(self, message: str, telling: Sequence[str] = ()) -> None:
        self.telling = tuple(telling)
        super().__init__("\n".join((message, *(f"  | {line}" for line in self.telling))))
