"""A way to a server that can fall silent, as networks do: nothing arrives any more, and nobody is told."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards connections to the server of an address; those it has can be silenced or cut."""

    def __init__(self, address: str) -> None:
        self._address = urlsplit(address)
        self._server: asyncio.Server | None = None
        self._ways: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.asked = 0
        """How many times something came from the side that connects: one that waits for each answer sends as often."""

    @property
    def url(self) -> str:
        """The address, by way of this proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = f"{self._address.username}@" if self._address.username else ""
        return urlunsplit(self._address._replace(netloc=f"{user}127.0.0.1:{port}"))

    def silence(self) -> None:
        """Forward nothing more on the connections there are; new ones are fine."""
        self._silent |= self._ways

    def cut(self) -> None:
        """End the connections there are."""
        for way in self._ways:
            way.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, *(way.wait_closed() for way in self._ways), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._address.hostname, self._address.port)
        except OSError:  # the server is gone, and so is the way to it
            writer.transport.abort()
            return
        self._ways |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink, asks=source is reader))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, asks: bool) -> None:
        try:
            while data := await source.read(65536):
                self.asked += asks
                if sink not in self._silent:
                    sink.write(data)
                    await sink.drain()
        except ConnectionError:
            pass
        finally:
            if sink not in self._silent:  # a silent way also hides that the other side has gone
                sink.close()
