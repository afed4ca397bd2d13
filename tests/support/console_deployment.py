"""A relay in memory that a test moves by hand, and an observer of it."""

from __future__ import annotations

import gc
import itertools
import sys
from typing import Any

from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.ports import Sources
from tests.support.console import InMemoryHosts, InMemoryTopic
from tests.support.in_memory_items import InMemoryItems
from tests.support.in_memory_outbox import InMemoryOutbox

NOW = 1_000_010.0


class Deployment:
    """A relay that the test moves by hand, and an observer of it."""

    def __init__(self, outbox: InMemoryOutbox | None = None) -> None:
        self.now = NOW
        self._numbers = itertools.count()
        self.outbox, self.topic = outbox or InMemoryOutbox(), InMemoryTopic()
        self.items, self.hosts = InMemoryItems(), InMemoryHosts()
        sources = Sources(self.outbox, self.topic, self.items, self.hosts)
        self.observer = Observer(sources, clock=lambda: self.now)

    def quarantine(self, identifier: str | None, reason: str = "message-too-large", **more: Any) -> None:
        number = next(self._numbers)
        at = f"{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}"
        record = {
            "id": f"r{number}",
            "partitionKey": "k",
            "type": "quarantinedEvent",
            "reason": reason,
            "detail": "as the test says",
            "quarantinedAt": f"2026-01-01T{at}.000000+00:00",
            "position": 0,
            "invocationId": "i",
        }
        if identifier is None:
            record["documentParts"] = 2
        else:
            record["document"] = {"id": identifier}
        self.items.put(record | more)


def size_of(root: object, besides: Deployment) -> int:
    """The bytes of everything that can be reached from an object, but what the test has given it."""
    seen = {id(each) for each in (besides, besides.outbox, besides.topic, besides.items, besides.hosts)}
    seen |= {id(each) for each in besides.outbox.committed}
    total, left = 0, [root]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type) or callable(each) or type(each).__name__ == "module":
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        left += gc.get_referents(each)
    return total
