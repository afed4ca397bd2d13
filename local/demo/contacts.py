"""The contact service as the demo's load: concurrent clients of its API, and the directory of contacts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from local.demo.clients import Clients
from local.demo.scenarios import scenarios
from local.demo.subscriber import Subscriber
from local.demo.tally import Tally
from local.stack.parts import Part
from outbox_relay.inbox.messages import Handler
from samples.contacts.consumer.kept import Kept, open_directory


class ContactLoad:
    """A load: clients change contacts, and a consumer keeps a directory of them."""

    matches_as = "directory_matches"

    def __init__(self, clients: Clients, directory: Kept, *, contacts: int, events: int, seed: int) -> None:
        self.progress = clients.progress
        self._clients = clients
        self._directory = directory
        self._subscriber: Subscriber | None = None
        self._scenarios = scenarios(min(contacts, events), events, seed)

    async def write(self, rate: float) -> None:
        """Run every contact's scenario, at `rate` events a second in total; 0 for no limit."""
        await self._clients.run(self._scenarios, rate)

    def committed_at(self, event: Mapping[str, Any]) -> float:
        """Return `createdAt`: the service raises an event just before the commit."""
        return datetime.fromisoformat(event["data"]["createdAt"]).timestamp()

    def handler(self, tally: Tally) -> Handler:
        """Return the consumer that keeps the directory."""
        self._subscriber = Subscriber(self._directory, tally)
        return self._subscriber

    async def matches(self) -> bool:
        """Return True if the directory has the contacts that the API lists, and no gaps in their events."""
        contacts = await self._clients.contacts()
        return self._subscriber is not None and await self._subscriber.agrees_with(contacts)

    def remark(self) -> str:
        """Return how many requests there were, and how many changes were refused."""
        return (
            f"{self.progress.requests} requests. {self.progress.refused} changes were refused as outdated (412) "
            "and repeated on the latest version."
        )


@asynccontextmanager
async def contacts(
    settings: Mapping[str, str], logs: Path, writers: int, **options: int
) -> AsyncIterator[tuple[Part, ContactLoad]]:
    """Start the contact service on a stack's store, and yield its process and the load.

    Args:
        settings: The stack's.
        logs: The folder for the service's log.
        writers: The number of concurrent clients.
        options: Those of ContactLoad.
    """
    part = await Part.start(
        *("contacts", "local", "contacts", "--exit-with-stdin", "--port", "0"),
        log=logs / "contacts.log",
        environment=settings,
    )
    try:
        async with (
            Clients(f"http://127.0.0.1:{part.details['port']}", writers) as clients,
            open_directory(settings.get("SQL")) as directory,
        ):
            yield part, ContactLoad(clients, directory, **options)
    finally:
        await part.stop()
