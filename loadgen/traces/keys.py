"""Keys in the beginning of a JSON text that is too long to be decoded whole: for `recognises`."""

import re

from loadgen.traces.rows import Head


def line_has(head: Head, *keys: str) -> bool:
    """True if a file's first line begins an object and names every key, at whatever depth."""
    return bool(head.lines) and text_has(head.lines[0], *keys)


def text_has(text: str, *keys: str) -> bool:
    """The same for a text. A key that is quoted inside of a string does not count: its quotation marks are escaped."""
    return text.lstrip().startswith("{") and all(re.search(rf'(?<!\\)"{key}"\s*:', text) for key in keys)
