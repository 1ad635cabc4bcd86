"""Everything that loadgen raises on purpose, and the exit code each one ends with.

    LoadgenError
    ├── UserError          exit 2   a mistake in what the user gave: file, key, value, what would be right
    └── ExperimentError    exit 3   the world did not play along; what was measured is kept
        └── ServerError             an engine did not start, died, or is not an LLM server

A failed request is none of these: it is a `Sample` with a `Failure`. Foreign errors are mapped at the door
where they enter.
"""

from collections.abc import Sequence

LINE_CHARS = 1_000
MOST_COMPLAINTS = 100


def line(text: str) -> str:
    """`text` as one line for a terminal: what cannot be printed is escaped, and what is too long is cut."""
    text = text[: LINE_CHARS + 1]
    if not text.isprintable():
        text = "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


class LoadgenError(Exception):
    """Root of the tree; `str(error)` is what the user reads."""

    exit_code = 3


class UserError(LoadgenError):
    """The user can mend this by changing what they typed or wrote. One line, or one line per complaint.

    Complaints quote files and servers: whatever these hold, a complaint is one line that a terminal can show, and
    beyond MOST_COMPLAINTS they are counted. `more`: complaints that are not given.
    """

    exit_code = 2

    def __init__(self, *complaints: str, more: int = 0) -> None:
        more += max(0, len(complaints) - MOST_COMPLAINTS)
        rest = [f"and {more:,} more"] if more else []
        self.complaints: Sequence[str] = (*map(line, complaints[:MOST_COMPLAINTS]), *rest)
        super().__init__("\n".join(self.complaints))


class ExperimentError(LoadgenError):
    """The run could not be carried out as planned."""


class ServerError(ExperimentError):
    """An engine did not start, died, or does not speak the protocol. `telling` holds the log lines that say why."""

    def __init__(self, message: str, telling: Sequence[str] = ()) -> None:
        self.telling = tuple(telling)
        super().__init__("\n".join((line(message), *(f"  | {line(told)}" for told in self.telling))))
