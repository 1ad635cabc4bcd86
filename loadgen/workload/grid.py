"""A grid of cells, contexts x concurrencies, written as one key: each cell is a stage."""

from typing import Annotated

from pydantic import Field, field_validator

from loadgen.workload.fields import Count, Keys, Streams, Tokens, Warmup, wrong

MOST = 50  # contexts, or concurrencies: a map beyond that is neither measured nor read
FEWEST_WAVES = 3  # one to fill the batch, two that end while it is full (analysis: the steady window)


class Grid(Keys):
    """Closed loops of every concurrency with prompts of every length."""

    contexts: tuple[Tokens, ...] = Field(min_length=2, max_length=MOST, description="prompt tokens, shortest first")
    concurrency: tuple[Streams, ...] = Field(
        min_length=1, max_length=MOST, description="requests in flight, fewest first"
    )
    output_tokens: Tokens = Field(description="output tokens of every request")
    waves: Annotated[Count, Field(ge=FEWEST_WAVES)] = Field(
        default=FEWEST_WAVES,
        description="requests of a cell for each one in flight; 3 at least, of which two end while all are in flight",
    )
    warmup: Warmup = Field(default=1, description="requests of a cell sent first and not measured")
    max_tokens: Tokens | None = Field(
        default=None,
        description="leave out cells whose prompts in flight have more tokens than this together: they take longest",
    )

    @field_validator("contexts", "concurrency")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if list(value) != sorted(set(value)):
            raise wrong("should rise from one to the next")
        return value

    def cells(self, max_input_tokens: int | None) -> list[tuple[int, int]]:
        """(context, concurrency) of the cells that are sent, by concurrency, then by context."""
        return [
            (context, streams)
            for streams in self.concurrency
            for context in self.contexts
            if (max_input_tokens is None or context <= max_input_tokens)
            and (self.max_tokens is None or context * streams <= self.max_tokens)
        ]

    def note(self, max_input_tokens: int | None) -> str | None:
        """What was left out, and why."""
        every = len(self.contexts) * len(self.concurrency)
        out = every - len(self.cells(max_input_tokens))
        most = max_input_tokens if max_input_tokens is not None and self.contexts[-1] > max_input_tokens else None
        bounds = [f"prompts above {most:,} tokens"] if most is not None else []
        bounds += [f"more than {self.max_tokens:,} prompt tokens in flight"] if self.max_tokens is not None else []
        return f"grid: {out:,} of {every:,} cells are left out: {' or '.join(bounds)}" if out else None
