"""The proxy that makes the broker far away."""

from __future__ import annotations

import asyncio

from bench.distance import Distance

ROUND_TRIP_S = 0.2


async def test_an_answer_takes_a_round_trip_and_everything_arrives_in_order() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        async with Distance(port, round_trip_ms=1000 * ROUND_TRIP_S) as far, asyncio.timeout(20):
            assert far.through(f"Endpoint=sb://localhost:{port};") == f"Endpoint=sb://localhost:{far.port};"
            reader, writer = await asyncio.open_connection("127.0.0.1", far.port)
            loop = asyncio.get_running_loop()
            began = loop.time()
            sent = [f"{number:03}".encode() for number in range(100)]
            for each in sent:
                writer.write(each)
            assert await reader.readexactly(300) == b"".join(sent)
            # The clock of the loop's timers may be a little early.
            assert loop.time() - began > 0.95 * ROUND_TRIP_S
            writer.close()
