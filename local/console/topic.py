"""A topic or queue, as the Service Bus emulator knows it: what became of each message at each subscription."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from outbox_relay.operator.console.content import content_of
from outbox_relay.operator.console.model import Arrival, DeadLetterGroup, Delivery, MessageContent, Subscription
from outbox_relay.operator.console.ports import Topic
from outbox_relay.operator.console.truncation import REASON, optional
from relay.backends.findings import Finding
from relay.core.errors import ServiceError

_TIMEOUT_S = 5.0
# Within this time, deliveries are not asked for again.
_FRESH_S = 0.2
# As many as the emulator remembers.
_REMEMBERED = 10_000

_ARRIVALS = {"waiting": Arrival.WAITING, "completed": Arrival.DELIVERED, "dead-lettered": Arrival.DEAD_LETTERED}

Name = tuple[str, str]
Messages = OrderedDict[Name, Delivery]
# When a subscription took each message of a name, in milliseconds.
Times = OrderedDict[Name, frozenset[int]]


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that waits at a subscription.

    Attributes:
        partition_key: Its session; None for one without.
        content: The beginning of its properties and of its body.
    """

    partition_key: str | None
    delivery: Delivery
    content: MessageContent


class EmulatorTopic:
    """See `outbox_relay.operator.console.ports.Topic`. Dead letters are peeked as in Azure."""

    def __init__(self, admin_url: str, of_azure: Topic, entity: str, *, is_queue: bool) -> None:
        """`entity` is its name. A queue is its own only subscription.

        `of_azure` reads what is read as in Azure, the dead-letter queues and the status; it is closed with this.
        """
        self._admin_url = admin_url
        self._of_azure = of_azure
        self.entity = entity
        self._is_queue = is_queue
        self._http: aiohttp.ClientSession | None = None
        self._changes: dict[str, int] = {}
        self._messages: dict[str, Messages] = {}
        self._times: dict[str, Times] = {}
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def subscriptions(self) -> Sequence[Subscription]:
        """See ports.Topic."""
        entities = await self._get("/admin/entities")
        prefix = "" if self._is_queue else f"{self.entity}/Subscriptions/"
        found = [
            Subscription(
                path.removeprefix(prefix),
                active=counts["active"] + counts["locked"],
                dead_lettered=counts["dead_letter"],
                delivered=counts["completed"],
            )
            for path, counts in entities.items()
            if (path == self.entity if self._is_queue else path.startswith(prefix))
        ]
        for each in found:
            self._messages.setdefault(each.name, OrderedDict())
        return sorted(found, key=lambda each: each.name)

    async def obstacles(self) -> Sequence[Finding]:
        """See ports.Topic: as in Azure."""
        return await self._of_azure.obstacles()

    async def dead_letters(self, subscription: str, /) -> Sequence[DeadLetterGroup]:
        """See ports.Topic."""
        return await self._of_azure.dead_letters(subscription)

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        """See ports.Topic. Of each subscription, the emulator's latest 10 000 messages are known."""
        await self._refresh()
        found = (messages.get((partition_key, each)) for each in ids for messages in self._messages.values())
        return [delivery for delivery in found if delivery is not None]

    async def waiting(self, subscription: str) -> Sequence[WaitingMessage]:
        """Return the messages waiting longest at a subscription, none if it does not exist. Locks none."""
        if subscription not in [each.name for each in await self.subscriptions()]:
            return []
        answer = await self._get(f"{self._path(subscription)}/waiting")
        found = ((story, _delivery(subscription, story)) for story in answer["messages"])
        return [
            WaitingMessage(story["session_id"], delivery, content_of(b64decode(story["encoded"])))
            for story, delivery in found
            if delivery is not None
        ]

    async def close(self) -> None:
        """Close every connection."""
        if self._http is not None:
            await self._http.close()
        await self._of_azure.close()

    async def _refresh(self) -> None:
        async with self._turn:
            if time.monotonic() - self._read_at <= _FRESH_S:
                return
            if not self._messages:
                await self.subscriptions()
            for subscription, messages in self._messages.items():
                await self._read(subscription, messages)
            self._read_at = time.monotonic()

    async def _read(self, subscription: str, messages: Messages) -> None:
        after, times = self._changes.get(subscription, 0), self._times.setdefault(subscription, OrderedDict())
        path = f"{self._path(subscription)}/messages"
        answer = await self._get(f"{path}?after={after}")
        if answer["change"] < after:  # another broker
            messages.clear()
            times.clear()
            answer = await self._get(path)
        self._changes[subscription] = answer["change"]
        for story in answer["messages"]:
            name = (story["session_id"] or "", story["message_id"] or "")
            times[name] = times.pop(name, frozenset()) | {story["accepted_ms"]}
            delivery = _delivery(subscription, story, again=len(times[name]) > 1)
            messages.pop(name, None)
            if delivery is not None:
                messages[name] = delivery
        for each in (messages, times):
            while len(each) > _REMEMBERED:
                each.popitem(last=False)

    def _path(self, subscription: str) -> str:
        outlet = "" if self._is_queue else f"/Subscriptions/{quote(subscription)}"
        return f"/admin/entities/{quote(self.entity)}{outlet}"

    async def _get(self, path: str) -> Any:
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        try:
            async with self._http.get(f"{self._admin_url}{path}") as response:
                response.raise_for_status()
                return await response.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ServiceError(
                f"the Service Bus emulator does not answer {path}: {error}. See its log."
            ) from error


def _delivery(subscription: str, story: Mapping[str, Any], *, again: bool = False) -> Delivery | None:
    """Return a message as the emulator reports it, or None if it has expired."""
    arrival = _ARRIVALS.get(story["fate"])
    if arrival is None:
        return None
    ended_ms = story["ended_ms"]
    return Delivery(
        message_id=story["message_id"],
        subscription=subscription,
        arrival=arrival,
        accepted_at=story["accepted_ms"] / 1000,
        at=None if ended_ms is None else ended_ms / 1000,
        deliveries=story["deliveries"],
        reason=optional(story["reason"], REASON),
        again=again,
    )
