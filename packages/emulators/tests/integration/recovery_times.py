"""Seconds until a host delivers again after faults of Cosmos DB, with the trigger's own lease timings.

    python -m packages.emulators.tests.integration.recovery_times

Takes three minutes; its figures are in packages/emulators/docs/functions-host.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from outbox_relay.emulators.cosmos.documents import Document
from outbox_relay.emulators.cosmos.jsontext import Part
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import UNLIMITED_RETRIES, checkpoint_written, write_app
from tests.support.waiting import elapse, look_again

WITHIN_S = 170.0
SECOND_EVENT_AFTER_S = 7.0

_APP = f"""\
import azure.functions as func

app = func.FunctionApp()


@app.cosmos_db_trigger(
    arg_name="documents",
    connection="COSMOS",
    database_name="outbox",
    container_name="data",
    start_from_beginning=True,
)
@app.retry({UNLIMITED_RETRIES})
def relay(documents: func.DocumentList) -> None:
    pass
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, and what the real trigger's host took; None if it was not measured."""

    name: str
    fault: Mapping[str, Any]
    real: str


_FEED = {"container": "data", "operation": "read-feed"}
_CHECKPOINT = {"container": "leases", "operation": "replace"}
ROWS = [
    Row("429 on the feed, 20 times", {"kind": "throttle", "match": _FEED, "count": 20}, "24"),
    Row("503 on the feed for 5 s", {"kind": "unavailable", "match": _FEED, "for_ms": 5_000}, "6"),
    Row("408 on the feed, 3 times", {"kind": "timeout", "match": _FEED, "count": 3}, "37"),
    Row(
        "a read of the feed that hangs", {"kind": "timeout", "match": _FEED, "count": 1, "hang_ms": 150_000}, "77"
    ),
    Row("connections dropped on the feed for 10 s", {"kind": "drop", "match": _FEED, "for_ms": 10_000}, "1"),
    Row("429 on the checkpoint, 12 times", {"kind": "throttle", "match": _CHECKPOINT, "count": 12}, "14"),
    Row("503 on the checkpoint, 3 times", {"kind": "unavailable", "match": _CHECKPOINT, "count": 3}, "over 60"),
    Row("503 on everything for 10 s", {"kind": "unavailable", "for_ms": 10_000}, "over 60"),
    Row("everything dropped for 10 s", {"kind": "drop", "for_ms": 10_000}, "0.6"),
]


async def main() -> None:
    """Measure each row, all at once, and print a table."""
    with tempfile.TemporaryDirectory() as directory:
        app = write_app(Path(directory) / "app", script=_APP)
        times = await asyncio.gather(*(_measured(row, app) for row in ROWS), return_exceptions=True)
    print("| fault | from its start, s | from its end, s | the real host, s |\n|---|---|---|---|")
    for row, taken in zip(ROWS, times, strict=True):
        shown = repr(taken) if isinstance(taken, BaseException) else f"{taken[0]:.0f} | {taken[1]:.1f}"
        print(f"| {row.name} | {shown} | {row.real} |")


async def _measured(row: Row, app: Path) -> tuple[float, float]:
    async with (
        CosmosServer(physical_partitions=1) as server,
        aiohttp.ClientSession() as session,
        CosmosClient.from_connection_string(server.connection_string) as account,
    ):
        database = await account.create_database("outbox")
        data = await database.create_container("data", PartitionKey("/partitionKey"), default_ttl=-1)
        leases = await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
        await data.create_item({"id": "before", "partitionKey": "a"})
        host = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "outbox_relay.emulators", "functions", "--app", str(app), "--port", "0"),
            *("--edges", "off", "--exit-with-stdin"),
            env={"PATH": "/usr/bin:/bin", "COSMOS": server.connection_string},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            line = (await host.stdout.readline()).decode()
            port = json.loads(line.removeprefix("READY "))["port"]
            await checkpoint_written(leases)
            return await _recovery(row, session, server, port)
        finally:
            host.stdin.close()
            await host.wait()


async def _recovery(
    row: Row, session: aiohttp.ClientSession, server: CosmosServer, port: int
) -> tuple[float, float]:
    faults = FaultClient(session, server.endpoint)
    started = ended = time.monotonic()
    answer = await faults.send("POST", body=row.fault)
    fault = int(answer.body["id"])

    async def watch() -> None:
        nonlocal ended
        while (await faults.get(fault))["pending"]:
            ended = time.monotonic()
            await look_again()

    watching = asyncio.create_task(watch())
    writing = asyncio.create_task(_write(server))
    await _delivered(session, port, 3)
    recovered = time.monotonic()
    await asyncio.gather(watching, writing)
    return recovered - started, recovered - ended


async def _write(server: CosmosServer) -> None:
    """Commit two events behind the wire, which the fault may be on."""
    (container,) = (
        each for each in server.account.catalog.databases["outbox"].containers.values() if each.id == "data"
    )
    for name, wait_s in (("first", 0.0), ("second", SECOND_EVENT_AFTER_S)):
        await elapse(wait_s)
        value = {"id": name, "partitionKey": "a"}
        with server.account.items.commit(container, container.partition_key.of_document(value)) as commit:
            commit.insert(Document.of(Part(value, json.dumps(value))))


async def _delivered(session: aiohttp.ClientSession, port: int, documents: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/admin/status") as response:
                function = (await response.json())["functions"][0]
            if function["documents_delivered"] >= documents:
                return
            await look_again()


if __name__ == "__main__":
    asyncio.run(main())
