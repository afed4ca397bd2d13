"""Compares what was committed with what subscribers processed. It shares no code with the relay."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery of a message.

    Attributes:
        sequence_number: The broker's; two deliveries of the same copy share it.
        sequence: The event's number within its key, if the message has one.
        processed: Whether the consumer processed the message and asked to complete it. If that request or its
            answer is lost, the message is delivered again. Otherwise the consumer gave the message back.
    """

    identifier: str
    key: str
    sequence_number: int
    delivery_count: int
    body: bytes
    subject: str
    sequence: object
    processed: bool


@dataclass(slots=True)
class Verdict:
    """The error counts of a campaign, and the first event that went wrong, with its history."""

    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    altered: int = 0
    first_wrong: str | None = None


@dataclass(slots=True)
class History:
    """Both sides of a campaign; commits and receipts are recorded in the order in which they happen."""

    committed: int = 0
    processed: set[str] = field(default_factory=set)
    poison: dict[str, str] = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _written: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _receipts: dict[str, list[Receipt]] = field(default_factory=lambda: defaultdict(list))

    def wrote(self, key: str, events: list[dict[str, Any]]) -> None:
        """A batch of a key was committed."""
        self._written[key].extend(events)
        self.committed += len(events)
        self._moved.set()

    async def until_committed(self, events: int) -> None:
        """Wait until that many events were committed; for one task at a time."""
        while self.committed < events:
            self._moved.clear()
            await self._moved.wait()

    def wrote_poison(self, document: dict[str, Any], reason: str) -> None:
        """A document was committed that must be quarantined for this reason."""
        self.poison[document["id"]] = reason

    def received(self, receipt: Receipt) -> None:
        """A message was delivered."""
        self._receipts[receipt.key].append(receipt)
        if receipt.processed:
            self.processed.add(receipt.identifier)

    @property
    def delivered_again(self) -> int:
        """How many deliveries were redeliveries."""
        return sum(receipt.delivery_count > 0 for receipts in self._receipts.values() for receipt in receipts)

    @property
    def complete(self) -> bool:
        """Whether every committed event was processed."""
        return len(self.processed) >= self.committed

    def judge(self) -> Verdict:
        """Compare per key: set, order, count and payload."""
        verdict = Verdict()
        for key in self._written.keys() | self._receipts.keys():
            self._judge_key(key, verdict)
        return verdict

    def _judge_key(self, key: str, verdict: Verdict) -> None:
        written, receipts = self._written[key], self._receipts[key]
        place = {event["id"]: number for number, event in enumerate(written)}
        copies: dict[str, set[int]] = defaultdict(set)
        for receipt in receipts:
            copies[receipt.identifier].add(receipt.sequence_number)
        # A redelivery is caused by the consumer; a second copy by the relay.
        for identifier, numbers in copies.items():
            if len(numbers) > 1:
                verdict.duplicated += len(numbers) - 1
                self._note(verdict, key, identifier, f"arrived in {len(numbers)} copies")
        processed = [receipt for receipt in receipts if receipt.processed]
        arrived = {receipt.identifier for receipt in processed}
        for event in written:
            if event["id"] not in arrived:
                verdict.missing += 1
                self._note(verdict, key, event["id"], "was never processed")
        self._judge_order(key, place, processed, verdict)
        for receipt in receipts:
            number = place.get(receipt.identifier)
            if number is None or not _matches(receipt, written[number]):
                verdict.altered += 1
                self._note(verdict, key, receipt.identifier, "was altered, or never committed")

    def _judge_order(self, key: str, place: dict[str, int], processed: list[Receipt], verdict: Verdict) -> None:
        furthest, seen = -1, set[str]()
        for receipt in processed:
            number = place.get(receipt.identifier)
            if number is None or receipt.identifier in seen:
                continue
            seen.add(receipt.identifier)
            if number < furthest:
                verdict.out_of_order += 1
                self._note(verdict, key, receipt.identifier, f"arrived after event {furthest} of its key")
            furthest = max(furthest, number)

    def _note(self, verdict: Verdict, key: str, identifier: str, what: str) -> None:
        if verdict.first_wrong is not None:
            return
        order = [event["id"] for event in self._written[key]]
        place = order.index(identifier) if identifier in order else None
        lines = [f"event {identifier!r} (number {place} of key {key!r}) {what}; its key's deliveries were:"]
        lines += [
            f"  #{receipt.sequence_number} {receipt.identifier} delivery {receipt.delivery_count} "
            f"{'processed' if receipt.processed else 'given back'}"
            for receipt in self._receipts[key]
        ]
        verdict.first_wrong = "\n".join(lines[:60])


def _matches(receipt: Receipt, event: dict[str, Any]) -> bool:
    return (
        _canonical(json.loads(receipt.body)) == _canonical(event["data"])
        and receipt.subject == event["data"]["action"]
        and receipt.sequence == event["sequence"]
    )


def _canonical(value: Any) -> str:
    """JSON text, which differs for 1 and 1.0, and for -0.0 and 0.0; Python's equality does not."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
