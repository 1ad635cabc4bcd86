"""The kinds of value that a scenario file holds: counts, numbers, durations, lengths.

Strict where YAML and pydantic are lax: `yes`, `"12"` and `true` are not numbers, `1e3` is the whole number 1,000.
"""

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
YEAR_S = 366 * 24 * 3600.0  # longer than anyone waits: a bound, so that no schedule overflows
LOWEST_RATE = 1e-6  # once in twelve days: likewise
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")


def wrong(should: str) -> PydanticCustomError:
    """An error whose text says what would be right."""
    return PydanticCustomError("scenario", "{should}", {"should": should})


def _number(value: Any) -> Any:
    if isinstance(value, str):
        raise wrong("should be a number, without quotes or unit")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong("should be a number")
    return value


def _rate(value: Any) -> Any:
    if 0 < _number(value) < LOWEST_RATE:
        raise wrong(f"should be at least {LOWEST_RATE}")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        raise wrong("should be a whole number, without quotes or unit")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise wrong("should be a whole number")
    return int(value)


def _seconds(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise wrong("should be a time: seconds (60), or a number with its unit (250ms, 60s, 2m)")
    return float(match[1]) * UNITS_S[match[2]]


def _think(value: Any) -> Any:
    if value in ("recorded", "none"):
        return value
    try:
        return _seconds(value)
    except PydanticCustomError as error:
        raise wrong("should be recorded, none, or a time: seconds (60) or with a unit (250ms, 2m)") from error


Tokens = Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_whole)]
Streams = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(_whole)]
Blocks = Annotated[int, Field(ge=1, le=1_000), BeforeValidator(_whole)]
Warmup = Annotated[int, Field(ge=0, le=100_000), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_whole)]
Rate = Annotated[float, Field(gt=0, le=1e6), BeforeValidator(_rate)]
Share = Annotated[float, Field(gt=0, le=1), BeforeValidator(_number)]
Exponent = Annotated[float, Field(ge=0, le=10), BeforeValidator(_number)]
Variation = Annotated[float, Field(ge=0, le=100), BeforeValidator(_number)]
Scale = Annotated[float, Field(gt=0, le=100), BeforeValidator(_number)]
Percent = Annotated[float, Field(ge=0, le=100), BeforeValidator(_number)]

Value = TypeVar("Value", int, float)

_TIME_SCHEMA = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{DURATION.pattern}$"}]}
Instant = Annotated[float, Field(ge=0, le=YEAR_S), BeforeValidator(_seconds), WithJsonSchema(_TIME_SCHEMA)]
Seconds = Annotated[float, Field(gt=0, le=YEAR_S), BeforeValidator(_seconds), WithJsonSchema(_TIME_SCHEMA)]
Think = Annotated[
    Literal["recorded", "none"] | Annotated[float, Field(ge=0, le=YEAR_S)],
    BeforeValidator(_think),
    WithJsonSchema({"anyOf": [{"enum": ["recorded", "none"]}, *_TIME_SCHEMA["anyOf"]]}),
]


class Keys(BaseModel):
    """A mapping of the scenario file: frozen, and no key beyond those that it names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(Keys):
    """Uniform between two bounds, both included."""

    range: tuple[Tokens, Tokens] = Field(description="lowest and highest number of tokens, both included")

    @field_validator("range")
    @classmethod
    def _ordered(cls, value: tuple[int, int]) -> tuple[int, int]:
        if value[0] > value[1]:
            raise wrong(f"should be [lowest, highest]: {value[0]} is above {value[1]}")
        return value


class Quantiles(Keys):
    """A distribution known by its quantiles: percent -> tokens."""

    quantiles: dict[Percent, Tokens] = Field(
        min_length=2,
        description="percent: tokens, e.g. {10: 40, 50: 128, 90: 400, 100: 900}; 100 (the maximum) is required",
    )

    @field_validator("quantiles")
    @classmethod
    def _increasing(cls, value: dict[float, int]) -> dict[float, int]:
        return _table(value, "tokens")


class Times(Keys):
    """A distribution of times known by its quantiles: percent -> time."""

    quantiles: dict[Percent, Seconds] = Field(
        min_length=2, description="percent: time, e.g. {10: 4, 50: 10, 90: 2m, 100: 1h}; 100 (the maximum) is required"
    )

    @field_validator("quantiles")
    @classmethod
    def _increasing(cls, value: dict[float, float]) -> dict[float, float]:
        return _table(value, "s")


def _table(value: Mapping[float, Value], unit: str) -> dict[float, Value]:
    table = dict(sorted(value.items()))
    if 100 not in table:
        raise wrong("should give the quantile 100, the maximum: without it there is no bound")
    for (low, less), (high, more) in pairwise(table.items()):
        if more < less:
            raise wrong(f"should not fall: quantile {low:g} is {less:g} {unit}, quantile {high:g} is {more:g}")
    return table


def _shape(value: Any) -> str | None:
    if isinstance(value, dict):
        tags = [tag for key, tag in (("range", "between"), ("quantiles", "table")) if key in value]
        return tags[0] if len(tags) == 1 else None
    if isinstance(value, Range):
        return "between"
    if isinstance(value, Quantiles):
        return "table"
    return "constant"


Lengths = Annotated[
    Annotated[Tokens, Tag("constant")] | Annotated[Range, Tag("between")] | Annotated[Quantiles, Tag("table")],
    Discriminator(
        _shape,
        custom_error_type="scenario",
        custom_error_message="should be a number of tokens, {range: [64, 256]} or {quantiles: {50: 128, 100: 900}}",
    ),
]

Delays = Annotated[
    Annotated[Instant, Tag("constant")] | Annotated[Times, Tag("table")],
    Discriminator(
        lambda value: "table" if isinstance(value, dict | Times) else "constant",
        custom_error_type="scenario",
        custom_error_message="should be a time (10, 2m) or {quantiles: {50: 10, 100: 2m}}",
    ),
]
