"""Written instants -> whole nanoseconds since 1 January of the year 1."""

import re
from datetime import date
from functools import lru_cache

STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:[.,](\d{1,9})\d*)?"
    r"\s?(?:Z|UTC|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)
STAMP_SHOULD = "a time such as 2023-11-16 18:17:03.9799600 or 2024-05-10 00:00:01+00:00"


def stamp_ns(text: str) -> int:
    """`2023-11-16 18:17:03.9799600`, `2024-05-10T00:00:01Z`, `...+02:00`: to the nanosecond, without a zone as UTC.

    Raises ValueError that says what would be right.
    """
    match = STAMP.fullmatch(text)
    if match is None:
        raise ValueError(STAMP_SHOULD)
    day, hour, minute, second, fraction, sign, zone_hour, zone_minute = match.groups()
    seconds = _days(day) * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        ahead = int(zone_hour) * 3600 + int(zone_minute or 0) * 60
        seconds += ahead if sign == "-" else -ahead
    return seconds * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)


@lru_cache(maxsize=64)
def _days(day: str) -> int:
    try:
        return date.fromisoformat(day).toordinal()
    except ValueError as error:
        raise ValueError(f"a date of the calendar ({error})") from error
