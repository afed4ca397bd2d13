"""The checker: compares what was committed with what a subscriber settled. It shares no code with the relay."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """One message as the subscriber received it, with times in seconds of the clock that times the commits.

    Attributes:
        at: When the subscriber received it.
        accepted_at: When the broker accepted it; None if it does not say.
    """

    identifier: str
    session: str
    subject: str
    body: bytes
    properties: dict[str, Any]
    at: float
    accepted_at: float | None = None


@dataclass(slots=True)
class Tally:
    """Collects both sides and compares them per partition key: set, order, count and payload.

    Attributes:
        timestamped: Whether messages have a `cosmosTimestamp`: those of Cosmos DB alone have one.
        action: The only action whose events arrive; None for all of them.
    """

    timestamped: bool = True
    action: str | None = None
    _written: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _written_at: dict[str, float] = field(default_factory=dict)
    _received: dict[str, list[Received]] = field(default_factory=lambda: defaultdict(list))
    _seen: set[str] = field(default_factory=set)
    written: int = 0
    receipts: int = 0

    def wrote(self, event: dict[str, Any], at: float) -> None:
        """Record a committed event; in commit order within its partition key, before or after it is received."""
        if self.action not in (None, event["data"]["action"]):
            return
        self._written[event["partitionKey"]].append(event)
        self._written_at[event["id"]] = at
        self.written += 1

    def received(self, message: Received) -> None:
        """Record a received message; in order of receipt within its session."""
        self._received[message.session].append(message)
        self._seen.add(message.identifier)
        self.receipts += 1

    @property
    def arrived(self) -> int:
        """Number of different events that have arrived, including those not recorded as written."""
        return len(self._seen)

    @property
    def delivered(self) -> int:
        """How many of the written events have arrived at least once."""
        return len(self._seen & self._written_at.keys())

    @property
    def complete(self) -> bool:
        """True if every event written so far has arrived."""
        return self._written_at.keys() <= self._seen

    def summary(self) -> dict[str, Any]:
        """Return the counts, and the latency from commit to receipt in milliseconds."""
        counts = {"missing": self.written - self.delivered, "duplicated": 0, "out_of_order": 0, "altered": 0}
        latencies = []
        for key in self._written.keys() | self._received.keys():
            self._compare(key, counts)
        for messages in self._received.values():
            for message in messages:
                written_at = self._written_at.get(message.identifier)
                if written_at is not None:
                    latencies.append(max(0.0, message.at - written_at) * 1000)
        latencies.sort()
        return {
            "written": self.written,
            "delivered": self.delivered,
            **counts,
            "p50_ms": _percentile(latencies, 0.50),
            "p99_ms": _percentile(latencies, 0.99),
        }

    def speed(self) -> dict[str, float | None]:
        """Return the rates of writers, relay and consumer a second, and the milliseconds from commit to topic."""
        received = [message for messages in self._received.values() for message in messages]
        accepted = {each.identifier: each.accepted_at for each in received if each.accepted_at is not None}
        waits = [
            max(0.0, at - self._written_at[each]) * 1000
            for each, at in accepted.items()
            if each in self._written_at
        ]
        waits.sort()
        return {
            "written_per_s": _rate(self._written_at.values()),
            "relayed_per_s": _rate(accepted.values()),
            "consumed_per_s": _rate([each.at for each in received]),
            "commit_to_topic_p50_ms": _percentile(waits, 0.50),
            "commit_to_topic_p99_ms": _percentile(waits, 0.99),
        }

    def _compare(self, key: str, counts: dict[str, int]) -> None:
        place = {event["id"]: number for number, event in enumerate(self._written[key])}
        seen: set[str] = set()
        furthest = -1
        for message in self._received[key]:
            if message.identifier in seen:
                counts["duplicated"] += 1
                continue
            seen.add(message.identifier)
            number = place.get(message.identifier)
            if number is None or not _matches(message, self._written[key][number], timestamped=self.timestamped):
                counts["altered"] += 1
            if number is not None:
                counts["out_of_order"] += number < furthest
                furthest = max(furthest, number)


def _matches(message: Received, event: dict[str, Any], *, timestamped: bool) -> bool:
    data = event["data"]
    return (
        _canonical(json.loads(message.body)) == _canonical(data)
        and message.subject == data["action"]
        and message.properties.get("type") == event["type"]
        and message.properties.get("createdAt") == data["createdAt"]
        and isinstance(message.properties.get("cosmosTimestamp"), int) == timestamped
    )


def _canonical(value: Any) -> str:
    """Return JSON text, which differs for 1, 1.0 and true; Python's equality does not."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _percentile(ordered: list[float], fraction: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * fraction))], 1) if ordered else None


def _rate(times: Collection[float]) -> float | None:
    """Return how many there are a second, between the first and the last; None if that is no time at all."""
    wall_s = max(times, default=0.0) - min(times, default=0.0)
    return round(len(times) / wall_s, 1) if wall_s else None
