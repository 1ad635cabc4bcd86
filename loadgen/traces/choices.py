"""Values of `--option NAME=VALUE`, checked: each raises a UserError that names the option and what would be right."""

from collections.abc import Mapping

from loadgen.errors import UserError
from loadgen.traces.rows import shown


def whole(options: Mapping[str, str], key: str, default: int) -> int:
    """A whole number, 0 or more."""
    text = options.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _wrong(key, text, "a whole number, 0 or more")
    return int(text)


def positive(options: Mapping[str, str], key: str) -> float | None:
    """A finite number above 0; None where it is not given."""
    text = options.get(key)
    if text is None:
        return None
    value = _number(text)
    if value is None or value == 0:
        raise _wrong(key, text, "a number above 0")
    return value


def span(options: Mapping[str, str], key: str) -> tuple[float, float] | None:
    """`from:to` in seconds, from before to; None where it is not given."""
    text = options.get(key)
    if text is None:
        return None
    begin, _, end = text.partition(":")
    low, high = _number(begin), _number(end)
    if low is None or high is None or low >= high:
        raise _wrong(key, text, "from:to in seconds, such as 0:3600")
    return low, high


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _wrong(key: str, text: str, should: str) -> UserError:
    return UserError(f"--option {key}: {shown(text)}: should be {should}")
