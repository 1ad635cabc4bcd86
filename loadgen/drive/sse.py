"""Server-sent events out of recorded (instant, bytes): no I/O, no clock.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterable, Iterator

BOM = b"\xef\xbb\xbf"


def events(pieces: Iterable[tuple[float, bytes]], *, complete: bool = True) -> Iterator[tuple[float, bytes]]:
    """The data of each event, with the instant of the piece that completed it (its blank line).

    Lines may end in LF, CR or CRLF (a CR ends its line at once, as the format says); several data lines are joined
    by LF; comments, other fields and events without data are left out; a byte-order mark is skipped. Where pieces
    are cut makes no difference to the data.

    `complete`: the body arrived whole, so that an event without its blank line counts too, which is more lenient than
    the format: some servers end with a bare `data: [DONE]`. Without it a cut-off event is left out.
    """
    held: list[bytes] = []
    after_cr = False
    first = True
    instant = 0.0
    for instant, piece in pieces:
        # Nearly every piece of a token stream is exactly one event of one line: no splitting then.
        if not held and piece.startswith(b"data: ") and piece.find(b"\n") == len(piece) - 2 and piece[-1] == 10:
            data = piece[6:-2]
            if b"\r" not in data:
                after_cr = first = False
                yield instant, data
                continue
        piece, after_cr = _with_lf_only(piece, after_cr)
        if b"\n\n" not in piece and not (held and held[-1].endswith(b"\n") and piece.startswith(b"\n")):
            if piece:
                held.append(piece)
            continue
        *blocks, rest = b"".join((*held, piece)).split(b"\n\n")
        held = [rest] if rest else []
        for block in blocks:
            yield from _data(instant, block.removeprefix(BOM) if first else block)
            first = False
    if complete and held:
        rest = b"".join(held)
        yield from _data(instant, rest.removeprefix(BOM) if first else rest)


def _with_lf_only(piece: bytes, after_cr: bool) -> tuple[bytes, bool]:
    """The piece with every line ending as LF, and whether it ended in CR: an LF that follows belongs to that CR."""
    if after_cr and piece:
        piece = piece.removeprefix(b"\n")
        if not piece:
            return piece, False
    if b"\r" not in piece:
        return piece, after_cr and not piece
    return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), piece.endswith(b"\r")


def _data(instant: float, block: bytes) -> Iterator[tuple[float, bytes]]:
    """The data of one event, if it has any."""
    lines = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
    if lines:
        yield instant, b"\n".join(lines)
