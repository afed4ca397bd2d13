"""Compares what was committed with what subscribers processed. It shares no code with the relay."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SET_ASIDE = "set-aside"
_PARKED = "key-parked"
BEHIND = "behind"
"""The member of a poison document without its own sequence that has that of the next event of its key."""


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


class Policy(StrEnum):
    """The policy for later events of a key when one can never be published: RELAY_ON_POISON."""

    SKIP = "skip"
    """They are published."""
    PARK = "park"
    """They are held back until an operator has removed the record of that one, and then released in order."""
    BLOCK = "block"
    """They wait until an operator has ordered that one to be set aside."""


@dataclass(slots=True)
class Verdict:
    """The error counts of a campaign, and the first event that went wrong, with its history.

    Attributes:
        missing: Sound events that were neither processed nor set aside by an order.
        duplicated: Second copies of an event.
        out_of_order: First copies that came behind a later event of their key.
        altered: Deliveries that differ from what was committed.
        quarantined_and_delivered: Documents that were set aside and delivered as well. An order can come too late,
            so those that the operator ordered do not count: one that is delivered after its order is out of order.
        ahead_of_poison: Events that were processed before what the policy holds them back for was settled.
        without_order: Documents that were set aside under `block` without an order.
        quarantined: Documents that were set aside, removed records included.
        expected_quarantined: The poison, and the sound events that were set aside by an order.
        first_wrong: A description.
    """

    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    altered: int = 0
    quarantined_and_delivered: int = 0
    ahead_of_poison: int = 0
    without_order: int = 0
    quarantined: int = 0
    expected_quarantined: int = 0
    first_wrong: str | None = None


@dataclass(slots=True)
class Aside:
    """The documents set aside: those in quarantine, and the operator's actions.

    Attributes:
        records: The reason of each quarantined document, by its id; removed records are among them.
        ordered: Ids of the documents that the operator ordered to be set aside.
    """

    records: dict[str, str] = field(default_factory=dict)
    ordered: set[str] = field(default_factory=set)

    def settles(self, identifier: str) -> bool:
        """Whether a document is set aside for good: not merely parked behind another one."""
        return self.records.get(identifier, _PARKED) != _PARKED


@dataclass(slots=True)
class History:
    """Both sides of a campaign; commits and receipts are recorded in the order in which they happen."""

    committed: int = 0
    processed: set[str] = field(default_factory=set)
    poison: dict[str, frozenset[str]] = field(default_factory=dict)
    _poison_of: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _now: int = 0
    _settled_at: dict[str, int] = field(default_factory=dict)
    _processed_at: dict[str, int] = field(default_factory=dict)
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

    def wrote_poison(self, document: dict[str, Any], reasons: frozenset[str]) -> None:
        """A document was committed that must be set aside for one of these reasons, or by an order."""
        self.poison[document["id"]] = reasons | {SET_ASIDE}
        self._poison_of[document["partitionKey"]].append(document)

    def settling(self, identifier: str) -> None:
        """The operator orders a document to be set aside, or removes its record: its key may then continue."""
        self._settled_at.setdefault(identifier, self._now)

    def received(self, receipt: Receipt) -> None:
        """A message was delivered."""
        self._receipts[receipt.key].append(receipt)
        self._now += 1
        if receipt.processed:
            self.processed.add(receipt.identifier)
            self._processed_at.setdefault(receipt.identifier, self._now)

    @property
    def delivered_again(self) -> int:
        """Number of redeliveries."""
        return sum(receipt.delivery_count > 0 for receipts in self._receipts.values() for receipt in receipts)

    @property
    def complete(self) -> bool:
        """Whether every committed event was processed."""
        return len(self.processed) >= self.committed

    def outstanding(self, aside: Aside) -> dict[str, list[str]]:
        """By key, the events that were neither processed nor set aside, and the poison that was not set aside."""
        found: dict[str, list[str]] = {}
        for key in self._written.keys() | self._poison_of.keys():
            sound = [event["id"] for event in self._written[key] if event["id"] not in self.processed]
            poison = [document["id"] for document in self._poison_of[key]]
            if rest := [each for each in (*sound, *poison) if not aside.settles(each)]:
                found[key] = rest
        return found

    def judge(self, aside: Aside, policy: Policy) -> Verdict:
        """Compare per key: set, order, count and payload, and what was set aside with what the policy promises."""
        verdict = Verdict()
        for key in self._written.keys() | self._receipts.keys():
            self._judge_key(key, aside, verdict)
            if policy is not Policy.SKIP:
                self._judge_held_back(key, verdict)
        self._judge_quarantine(aside, policy, verdict)
        return verdict

    def _judge_held_back(self, key: str, verdict: Verdict) -> None:
        for document in self._poison_of[key]:
            settled = self._settled_at.get(document["id"])
            behind = document.get(BEHIND) or document["sequence"]
            for event in self._written[key]:
                processed = self._processed_at.get(event["id"])
                if processed is None or event["sequence"] < behind:
                    continue
                if settled is None or processed <= settled:
                    verdict.ahead_of_poison += 1
                    self._note(verdict, key, event["id"], f"was processed ahead of {document['id']!r}")

    def _judge_quarantine(self, aside: Aside, policy: Policy, verdict: Verdict) -> None:
        verdict.quarantined = len(aside.records)
        ordered = aside.ordered & aside.records.keys()
        verdict.expected_quarantined = len(self.poison.keys() | ordered)
        delivered = {receipt.identifier for receipts in self._receipts.values() for receipt in receipts}
        for identifier in aside.records:
            if identifier in delivered and identifier not in aside.ordered:
                verdict.quarantined_and_delivered += 1
                verdict.first_wrong = verdict.first_wrong or f"{identifier!r} was set aside and delivered"
            if policy is Policy.BLOCK and identifier not in aside.ordered:
                verdict.without_order += 1
                verdict.first_wrong = verdict.first_wrong or f"{identifier!r} was set aside without an order"

    def _judge_key(self, key: str, aside: Aside, verdict: Verdict) -> None:
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
            ordered = event["id"] in aside.ordered and aside.settles(event["id"])
            if event["id"] not in arrived and not ordered:
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
