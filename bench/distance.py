"""A TCP proxy that makes the broker as far away as a network does: whatever passes arrives later."""

from __future__ import annotations

import asyncio

from bench.proxy import CHUNK, Proxy


class Distance(Proxy):
    """Forwards each byte after half of a round trip.

    Args:
        port: Of the broker.
        round_trip_ms: How long a request and its answer take longer.
    """

    def __init__(self, port: int, *, round_trip_ms: float) -> None:
        super().__init__(port)
        self._half_s = round_trip_ms / 2000

    async def _outward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(CHUNK):
            # Timers of the same length run in order.
            loop.call_later(self._half_s, _write, writer, data)
        await asyncio.sleep(2 * self._half_s)

    _inward = _outward


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)
