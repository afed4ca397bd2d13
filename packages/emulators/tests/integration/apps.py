"""Function apps for a test, and the recorder of what they receive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.cosmos.aio import ContainerProxy

from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

UNLIMITED_RETRIES = 'strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:00"'

_SCRIPT = """\
import azure.functions as func
import recorder

app = func.FunctionApp()


@app.cosmos_db_trigger({trigger})
{retry}
async def relay(documents: func.DocumentList, context: func.Context) -> None:
    await recorder.received({name!r}, documents, context)
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An attempt: its app, its documents, and its retry context."""

    app: str
    documents: list[dict[str, Any]]
    invocation_id: str
    retry_count: int
    max_retry_count: int
    previous_error: str

    @property
    def ids(self) -> list[str]:
        return [document["id"] for document in self.documents]


async def _succeed(_: Delivery) -> None:
    pass


class Recorder:
    """The module that the apps import as `recorder`; `behaviour` is what their function then does."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.succeeded: list[Delivery] = []
        self.behaviour: Callable[[Delivery], Awaitable[None]] = _succeed
        self._changed = asyncio.Event()

    async def received(self, app: str, documents: Any, context: Any) -> None:
        retry = context.retry_context
        delivery = Delivery(
            app,
            [dict(document) for document in documents],
            context.invocation_id,
            retry.retry_count,
            retry.max_retry_count,
            retry.rpc_exception.message,
        )
        self.deliveries.append(delivery)
        self._changed.set()
        await self.behaviour(delivery)
        self.succeeded.append(delivery)
        self._changed.set()

    def succeeded_ids(self, app: str | None = None) -> list[str]:
        """The documents of all attempts that succeeded, in order, repetitions included."""
        return [id_ for delivery in self.succeeded if app in (None, delivery.app) for id_ in delivery.ids]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, looking at it whenever something was recorded."""
        async with asyncio.timeout(WATCHDOG_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until a condition holds, by polling it."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await look_again()


async def stored_leases(container: ContainerProxy) -> list[dict[str, Any]]:
    """The lease documents, without the marker."""
    documents = [document async for document in container.query_items("SELECT * FROM c")]
    return sorted((document for document in documents if "LeaseToken" in document), key=lambda lease: lease["id"])


async def checkpoint_written(container: ContainerProxy) -> None:
    """Wait until some lease has a continuation."""

    async def written() -> bool:
        return any(lease["ContinuationToken"] for lease in await stored_leases(container))

    await eventually(written)


def write_app(
    directory: Path,
    *,
    name: str = "app",
    retry: str | None = UNLIMITED_RETRIES,
    keep_dates: bool = True,
    host_json: dict[str, Any] | None = None,
    script: str | None = None,
    **trigger: Any,
) -> Path:
    """A function app whose one function records what it is given; `trigger` changes the decorator's arguments."""
    arguments = {
        "arg_name": "documents",
        "connection": "COSMOS",
        "database_name": "outbox",
        "container_name": "data",
        "lease_container_name": "leases",
        "feed_poll_delay": 100,
        "start_from_beginning": True,
        **trigger,
    }
    listed = ", ".join(f"{key}={value!r}" for key, value in arguments.items() if value is not None)
    decorator = f"@app.retry({retry})" if retry else ""
    handling = {"serializerSettings": {"dateParseHandling": "None"}} if keep_dates else {}
    content = {
        "version": "2.0",
        "extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.28.0, 5.0.0)"},
        "extensions": {"cosmosDB": handling},
        **(host_json or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "host.json").write_text(json.dumps(content))
    (directory / "function_app.py").write_text(
        script or _SCRIPT.format(trigger=listed, retry=decorator, name=name)
    )
    return directory
