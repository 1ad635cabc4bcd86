"""What every record is."""

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen, slotted, keyword-only record."""
