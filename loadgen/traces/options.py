"""Values of a format's options. Each raises a UserError that names the option and what would be right."""

import math
from collections.abc import Mapping

from loadgen.errors import UserError


def number(options: Mapping[str, str], key: str, default: float | None = None, *, zero: bool = False) -> float:
    """A finite number above 0, or 0 too where `zero`. Without a default it has to be there."""
    given = options.get(key)
    if given is None and default is not None:
        return default
    try:
        value = float(given) if given is not None else math.nan
    except ValueError:
        value = math.nan
    if not (0 < value < 1e9 or (zero and value == 0)):
        raise UserError(f"--option {key}: {given!r}: should be a number{', 0 or more' if zero else ' above 0'}")
    return value


def whole(options: Mapping[str, str], key: str, default: int, *, least: int = 0) -> int:
    """A whole number, `least` or more."""
    given = options.get(key, str(default))
    if not (given.isascii() and given.isdigit() and len(given) <= 9 and int(given) >= least):
        raise UserError(f"--option {key}: {given!r}: should be a whole number, {least} or more")
    return int(given)


def choice(options: Mapping[str, str], key: str, default: str, of: tuple[str, ...]) -> str:
    """One of a few words."""
    given = options.get(key, default)
    if given not in of:
        raise UserError(f"--option {key}: {given!r}: should be one of {', '.join(of)}")
    return given


def span(options: Mapping[str, str], key: str) -> tuple[float, float] | None:
    """`from:to` in seconds, from before to; None where it is not given."""
    given = options.get(key)
    if given is None:
        return None
    try:
        low, high = map(float, given.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not 0 <= low < high < 1e12:
        raise UserError(f"--option {key}: {given!r}: should be from:to in seconds, such as 0:3600")
    return low, high
