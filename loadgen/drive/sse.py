"""Server-sent events out of bytes: no I/O, no clock.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

BOM = b"\xef\xbb\xbf"
MOST_BYTES = 16 * 2**20


class Decoder:
    """Decodes one stream, given piece by piece; where it is cut into pieces makes no difference to what comes out.

    Lines may end in LF, CR or CRLF (a CR ends its line at once, as the format says); several data lines are joined
    by LF; comments, other fields and events without data are left out; a byte-order mark is skipped. What an event has
    beyond MOST_BYTES is dropped, so that a stream without end takes no memory without end.
    """

    __slots__ = ("_after_cr", "_first", "_held", "_held_bytes", "_left_out")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._left_out = False
        self._after_cr = False
        self._first = True

    @property
    def settled(self) -> bool:
        """True between two events whose lines end in LF: what comes next is a new event, whatever was before it."""
        return not (self._held or self._after_cr or self._first)

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that `piece` completes with its blank line."""
        held = self._held
        piece = self._with_lf_only(piece)
        if b"\n\n" not in piece and not (held and piece.startswith(b"\n") and held[-1].endswith(b"\n")):
            if piece:
                self._hold(piece)
            return []
        *blocks, rest = b"".join((*held, piece)).split(b"\n\n")
        held[:] = [rest] if rest else []
        self._held_bytes, self._left_out = len(rest), False
        if self._first:
            blocks[0] = blocks[0].removeprefix(BOM)
            self._first = False
        return [data for block in blocks if (data := _data(block)) is not None]

    def rest(self) -> list[bytes]:
        """The data of a last event without its blank line, for a stream whose body has come whole.

        More lenient than the format, which drops it: some servers end with a bare `data: [DONE]`.
        """
        held = b"".join(self._held)
        data = _data(held.removeprefix(BOM) if self._first else held)
        self._held.clear()
        return [] if data is None else [data]

    def _hold(self, piece: bytes) -> None:
        """Keeps a piece of an unfinished event; beyond MOST_BYTES only whether it ends its line."""
        if self._held_bytes < MOST_BYTES:
            self._held.append(piece)
            self._held_bytes += len(piece)
            return
        if self._left_out:
            self._held.pop()
        self._held.append(b":" + piece[-1:])
        self._left_out = True

    def _with_lf_only(self, piece: bytes) -> bytes:
        """The piece with every line ending as LF; an LF that follows the CR of the last piece belongs to that CR."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if b"\r" not in piece:
            return piece
        self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data(block: bytes) -> bytes | None:
    """The data lines of one event, joined; None if it has none."""
    lines = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) if lines else None
