"""The second half of `smoke --oversized`: an event that is too large for a message, and small events after it.

Service Bus refuses an oversized message and detaches the sender's link. The SDK notices while the sender is
idle, and raises the error of the detached link for the next message (azure-sdk-for-python issue 37916). A relay
that takes this for the outcome of that message quarantines valid events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from relay.canary import ACTION, PREFIX, TTL_S, canary_id
from relay.cli.records import Records
from relay.cli.session import Session
from relay.events import Reason
from relay.outbox import Canary
from relay.quarantine.items import Filter, RecordSummary

# More than a link takes on Standard (256 KB) and on Premium (1 MB), less than the limit of an item (2 MB).
_OVERSIZED_BYTES = 1_500_000
_SMALL = 5
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Oversized:
    """The result of the oversized event and the small ones.

    Attributes:
        reason: The reason in the quarantine record; None if the event was not quarantined in time.
        sent: How many small events were written after the pause; 0 if the test ended before.
        arrived: How many of them arrived, in order.
        quarantined: The reasons of those that were quarantined instead.
        left_behind: What could not be cleaned up.
    """

    reason: str | None
    sent: int
    arrived: int
    quarantined: list[str]
    left_behind: list[str]

    @property
    def ok(self) -> bool:
        """Whether the test passed."""
        return self.reason == Reason.MESSAGE_TOO_LARGE and 0 < self.sent == self.arrived

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "reason": self.reason,
            "sent": self.sent,
            "arrived": self.arrived,
            "quarantined": self.quarantined,
        }

    def lines(self) -> list[str]:
        """For people, with the remedy."""
        if self.ok:
            return [f"ok: an oversized event was quarantined, and {self.sent} small ones after it arrived"]
        if self.reason is None:
            return [
                "missing: the oversized event was not quarantined",
                "-> Check that RELAY_ON_POISON is not 'block' in the deployed app, and read its log. A Premium "
                "topic with large messages accepts an event of any size that the outbox stores.",
            ]
        if self.reason != Reason.MESSAGE_TOO_LARGE:
            return [
                f"quarantined: the oversized event, as {self.reason}, not as {Reason.MESSAGE_TOO_LARGE}",
                "-> Check that the deployed app is this version of the relay.",
            ]
        reasons = ", ".join(self.quarantined) or "none quarantined"
        return [
            f"missing: after an oversized event only {self.arrived} of {self.sent} small ones arrived ({reasons})",
            "-> A sender keeps refusing messages: check that the deployed app is this version of the relay.",
        ]


class OversizedTest:
    """Writes the events, checks where they end up, and deletes what it wrote."""

    def __init__(
        self, outbox: Canary, records: Records, session: Session, event_type: str, timeout_s: float
    ) -> None:
        self._outbox = outbox
        self._records = records
        self._session = session
        self._event_type = event_type
        self._timeout_s = timeout_s
        self._left_behind: list[str] = []

    async def run(self, partition_key: str, pause_s: float) -> Oversized:
        """Write the oversized event, pause, write the small ones.

        Args:
            partition_key: The key of the locked session, for the small events.
            pause_s: Seconds between the oversized event's quarantine and the first small one.

        Raises:
            ServiceError: The outbox or Service Bus cannot be reached, or refuses.
        """
        reason = await self._send_oversized()
        if reason != Reason.MESSAGE_TOO_LARGE:
            return Oversized(reason, 0, 0, [], self._left_behind)
        await asyncio.sleep(pause_s)
        arrived = 0
        for _ in range(_SMALL):
            arrived += await self._send_small(partition_key)
        quarantined = [summary.reason for summary in await self._take(partition_key)]
        return Oversized(reason, _SMALL, arrived, quarantined, self._left_behind)

    async def _send_oversized(self) -> str | None:
        document = self._event(f"{PREFIX}{uuid4()}", "x" * _OVERSIZED_BYTES)
        async with self._written(document):
            deadline = time.monotonic() + self._timeout_s
            while not (summaries := await self._take(document["partitionKey"])):
                if time.monotonic() > deadline:
                    return None
                await asyncio.sleep(_POLL_S)
        return summaries[0].reason

    async def _send_small(self, partition_key: str) -> bool:
        document = self._event(partition_key, "small")
        async with self._written(document):
            message = await self._session.receive(self._timeout_s)
        return message is not None and message.message_id == document["id"]

    def _event(self, partition_key: str, text: str) -> dict[str, Any]:
        data = {"action": ACTION, "createdAt": datetime.now(UTC).isoformat(), "text": text}
        return {
            "id": canary_id(),
            "partitionKey": partition_key,
            "type": self._event_type,
            "ttl": TTL_S,
            "data": data,
        }

    async def _take(self, partition_key: str) -> list[RecordSummary]:
        """Remove the key's quarantine records, unpark the key, and return the records."""
        summaries = await self._records.find(Filter(partition_key=partition_key))
        for summary in summaries:
            await self._records.remove(summary)
        if summaries:
            await self._records.unpark(partition_key)
        return summaries

    @asynccontextmanager
    async def _written(self, document: dict[str, Any]) -> AsyncIterator[None]:
        await self._outbox.write(document)
        try:
            yield
        finally:
            if left := await self._outbox.remove(document):
                self._left_behind.append(left)
