"""The objects that a process keeps of the events that it has relayed: a bounded number, however many events.

`make demo EVENTS=1000000` shows the resident memory; the ledger alone takes until 200 000 to be full.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from relay.backends.cosmos import effective_keys
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.effective_keys import EffectiveKeys
from relay.backends.cosmos.leases import LeasePosition, Positions
from relay.backends.cosmos.source import CosmosBatch, CosmosSource
from relay.core import orders
from relay.core.evidence import AcceptedLedger
from relay.core.pipeline import Relay
from relay.quarantine.quarantine import StoredQuarantine
from relay.routes.selection import BY_DEFAULT
from tests.support.in_memory_items import InMemoryItems
from tests.unit.relay.topics import FakeTopic

ROUND, PAGE = 2000, 100

# Rounds until all that is bounded is full: caches of 4096 entries, and those made smaller here.
WARM_UP, ROUNDS = 5, 3


class Leases:
    """The containers of a source whose leases have passed no event; every event is compared with them."""

    def __init__(self) -> None:
        definition = {"kind": "Hash", "version": 2}
        lease = LeasePosition("a..0", "", "40", "host", '"0"')
        # It covers no key, but the leases disagree: so each event's key is hashed.
        other = LeasePosition("a..1", "40", "FF", "host", '"999999999"')
        self._positions = Positions(EffectiveKeys(cast("Any", None), definition), [lease, other])

    async def positions(self) -> Positions:
        return self._positions


class Process:
    """A process of the relay, and the topic and the quarantine that forget what they got."""

    def __init__(self) -> None:
        self.topic, self.items = FakeTopic(), InMemoryItems()
        # Whatever the relay keeps for a generation is as much at the end of each round.
        publisher = self.topic.publisher(senders=4, ledger=AcceptedLedger(ROUND))
        source = CosmosSource(BY_DEFAULT, cast("Containers", Leases()))
        self.relay: Relay[CosmosBatch] = Relay(
            source, publisher, StoredQuarantine(self.items), duplicate_window_s=600
        )
        self.relayed = 0

    async def round(self) -> int:
        """Relay pages of new events of new keys; returns the number of the interpreter's blocks of memory then."""
        for _ in range(ROUND // PAGE):
            page = [self._document(self.relayed + number) for number in range(PAGE)]
            self.relayed += PAGE
            outcome = await self.relay.handle(page, f"i{self.relayed}", 0)
            assert (outcome.published, len(outcome.set_aside)) == (PAGE - 2, 2)
        self._forget()
        gc.collect()
        return sys.getallocatedblocks()

    def _document(self, number: int) -> dict[str, Any]:
        # Two of a page cannot be published.
        data = 7 if number % (PAGE // 2) == 0 else {"action": f"action {number}", "number": number}
        document = {"id": f"event {number}", "partitionKey": f"key {number // 2}", "type": "domainEvent"}
        return {**document, "data": data, "_lsn": number + 1, "_ts": 1000}

    def _forget(self) -> None:
        topic = self.topic
        for kept in (topic.accepted, topic._seen, topic.transfers, topic.sizes, topic.batched, self.items._stored):
            kept.clear()
        self.items.batches.clear()


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Log nothing, as each test keeps the records of its log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
async def test_what_is_kept_of_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effective_keys, "_KEYS", ROUND // 4)
    monkeypatch.setattr(orders, "_REMEMBERED", PAGE // 2)
    process = Process()

    blocks = [await process.round() for _ in range(WARM_UP + ROUNDS)]

    # One object an event would be twice as many. Whatever else the process of the tests does allocates some, too.
    steady = blocks[WARM_UP:]
    assert max(steady) - min(steady) < ROUND, blocks
