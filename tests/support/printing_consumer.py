"""A part that prints one message, as the consumer of the demo does, and ends."""

from __future__ import annotations

from datetime import UTC, datetime

from local.demo import consumer
from outbox_relay import inbox
from outbox_relay.emulators.process import announce

MESSAGE = inbox.Message(
    "e-1",
    "key",
    '{"name": "Bj\u00f6rk"}'.encode(),
    action="Renamed",
    sequence=1,
    properties={"type": "domainEvent", "cosmosTimestamp": 1_700_000_000},
    sequence_number=7,
    enqueued_at=datetime(2026, 2, 9, 11, 37, 37, 302_000, tzinfo=UTC),
)


if __name__ == "__main__":
    announce({"part": "consumer"})
    consumer._print(MESSAGE)
