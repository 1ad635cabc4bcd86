"""What lies below HTTP: a uvicorn protocol whose transport can be told to misbehave.

uvicorn writes each message of an application with one `write`. Faults (`below_http`) hold writes back, cut them up, add
bytes of their own, or end the connection as networks and proxies do.
"""

import asyncio
import os
import socket
import struct
from typing import Any

import psutil
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "loadgen.wire"
LINGER_NOT = struct.pack("ii", 1, 0)  # close() sends RST and drops what is not yet sent


class Wire(asyncio.Transport):
    """A transport around a transport. Behaves as that one does until a fault asks otherwise; see `WireProtocol`."""

    def __init__(self, inner: asyncio.Transport, protocol: "WireProtocol") -> None:
        super().__init__()
        self._inner = inner
        self._protocol = protocol
        self._held: list[bytes] | None = None
        self.piece_bytes: int | None = None  # the most that one write to the socket carries

    def renew(self) -> None:
        """Forgets what was asked for the last request."""
        self._held, self.piece_bytes = None, None

    def hold(self) -> None:
        """Keeps back what is written from here on."""
        self._held = self._held or []

    def release(self, share: float = 1.0) -> None:
        """Sends that share of what is held; all of it ends the holding."""
        data = b"".join(self._held or ())
        count = int(len(data) * share)
        self._held = None if share >= 1 else [data[count:]]
        self._put(data[:count])

    def discard(self) -> None:
        """Forgets what is held, and holds no more."""
        self._held = None

    def reset(self) -> None:
        """Ends the connection with RST: what the client has not read may be lost to it."""
        raw: socket.socket = self._inner.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self._inner.abort()

    def refuse(self, listening: bool) -> None:
        """Ends every connection; new ones are refused, or, if still `listening`, closed as soon as they are made."""
        self._protocol.door.shut = True
        if not listening:
            _stop_listening(self._inner.get_extra_info("sockname")[1])
        for other in list(self._protocol.connections):
            if isinstance(other, WireProtocol):
                other.wire.reset()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends, or keeps."""
        if self._held is None:
            self._put(bytes(data))
        else:
            self._held.append(bytes(data))

    def _put(self, data: bytes) -> None:
        step = self.piece_bytes or len(data) or 1
        for at in range(0, len(data), step):
            if not self._inner.is_closing():
                self._inner.write(data[at : at + step])

    def close(self) -> None:
        """Closes when all that was written has been sent."""
        if self._held is not None:
            self.release()
        self._inner.close()

    def abort(self) -> None:
        """Closes at once."""
        self._inner.abort()

    def is_closing(self) -> bool:
        """True once either side has closed it."""
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the inner transport says."""
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Reads no more for now."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Reads on."""
        self._inner.resume_reading()


class Door:
    """Shared by all connections of a server: shut, it takes no new ones."""

    def __init__(self) -> None:
        self.shut = False


class WireProtocol(HttpToolsProtocol):
    """uvicorn's protocol over a `Wire`, which faults find in a request's scope (`wire_of`)."""

    door: Door
    wire: Wire

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        self.wire = Wire(transport, self)
        super().connection_made(self.wire)
        if self.door.shut:
            self.wire.close()

    def on_message_begin(self) -> None:
        """Called by the parser."""
        super().on_message_begin()
        self.wire.renew()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["extensions"] = {EXTENSION: self.wire}


def protocol_class() -> type[WireProtocol]:
    """A protocol class for one server."""

    class Protocol(WireProtocol):
        door = Door()

    return Protocol


def wire_of(scope: Scope) -> Wire:
    """The wire under a request. Raises RuntimeError if the server was not given `Faults.protocol()`."""
    wire = scope.get("extensions", {}).get(EXTENSION)
    if not isinstance(wire, Wire):
        raise RuntimeError("this fault lies below HTTP: the server needs the protocol class of the faults")
    return wire


def _stop_listening(port: int) -> None:
    """Takes the socket of `port` out of listening, so that the kernel refuses. Its owner may still close it."""
    loop = asyncio.get_running_loop()
    for seen in psutil.Process().net_connections("tcp"):
        if seen.status == psutil.CONN_LISTEN and seen.laddr.port == port:
            loop.remove_reader(seen.fd)  # a socket that has ceased to listen would wake the loop for ever
            with socket.socket(fileno=os.dup(seen.fd)) as listening:
                listening.shutdown(socket.SHUT_RDWR)
