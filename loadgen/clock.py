"""One monotonic clock per run: every instant in a run directory is seconds since the run's origin."""

import time
from collections.abc import Callable


class Clock:
    """Seconds since `origin` on a monotonic `source`.

    Linux's `time.monotonic` and the event loop's `time()` are the same clock, so that instants stamped in a
    socket callback and instants that a pacer waits for can be compared. Tests give the virtual loop's `time`
    as the source.
    """

    __slots__ = ("origin", "source")

    def __init__(self, source: Callable[[], float] = time.monotonic, origin: float | None = None) -> None:
        self.source = source
        self.origin = source() if origin is None else origin

    def now(self) -> float:
        """Seconds since the origin."""
        return self.source() - self.origin
