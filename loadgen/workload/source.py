"""The keys that say which trace to send, and how."""

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from loadgen.workload.fields import Instant, Keys, Rate, Scale, Seconds, Think, wrong


class TraceSource(Keys):
    """A production trace that gives lengths, times and shared prefixes."""

    path: Path = Field(
        description="file or folder, relative to the scenario file, then to the working directory; $VARS expand"
    )
    format: str = Field(
        default="auto",
        pattern=r"^[a-z0-9_-]+$",
        description="auto looks at what is in it; `loadgen trace import --list` names the formats",
    )
    window: tuple[Instant, Instant] | None = Field(
        default=None, description="[from, to): keep rows of this part of the trace"
    )
    dequantize: Literal["auto", "off"] = Field(
        default="auto",
        description="a trace whose clock is coarse: auto spreads each row's time evenly over the clock's step, as far "
        "as the trace tells one; off sends its rows in batches",
    )
    sessions: Literal["closed", "open"] = Field(
        default="closed",
        description="closed: a session's first turn is sent at its own time, each later one when those that it follows "
        "have ended and the client has thought; open: every row at its own time, whatever became of others",
    )
    think: Think = Field(
        default="recorded",
        description="the client's delay before a turn: as recorded, none, or one time for all (10, 2m)",
    )
    think_cap: Seconds | None = Field(default=None, description="recorded think times above this are cut to it")
    think_speed: Rate = Field(
        default=1,
        description="recorded think times are divided by this; a stage's speed leaves them alone: a person or a tool "
        "does not get faster because more of them come",
    )
    scale_tokens: Scale | None = Field(
        default=None,
        description="multiply prompts, outputs and prefix blocks by this, to fit a smaller model: ids are kept, a "
        "block becomes a whole number of tokens and sets the scale, so that the reused share stays what it is",
    )

    @field_validator("path", mode="before")
    @classmethod
    def _found(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            raise wrong("should be the path of a trace file")
        expanded = os.path.expandvars(value)
        unset = re.search(r"\$\{?(\w+)", expanded)
        if unset:
            raise wrong(f"environment variable {unset[1]} is not set; set it, or write the path out")
        folders = [Path(folder) for folder in (info.context or {}).get("folders", ())]
        try:
            candidates = [folder / Path(expanded).expanduser() for folder in folders] or [Path(expanded)]
            found = next((path for path in candidates if path.exists()), None)
        except (OSError, RuntimeError) as error:  # a folder that may not be entered, a name too long, no such ~user
            raise wrong(f"cannot be looked for: {getattr(error, 'strerror', None) or error}") from error
        if found is None:
            raise wrong(f"no such file: looked for {' and '.join(dict.fromkeys(map(str, candidates)))}")
        return found

    @field_validator("window")
    @classmethod
    def _ordered(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and value[0] >= value[1]:
            raise wrong("should be [from, to] with from before to")
        return value
