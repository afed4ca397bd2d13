"""Receiving: `inbox` beside the SDK's own receiver, with the same guarantees written by hand, and with none.

The consumer is a process of its own, and so is the broker. Each turn has its own messages and its own database.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from local.stack.environment import TOPIC
from local.stack.parts import Part
from outbox_relay.inbox import connect
from verification.bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent, shown
from verification.bench.broker import Broker
from verification.bench.consumer import BY_HAND, IN_TURN, INBOX, SUBSCRIPTION

_PREFETCH = 50
_LEAST_BY_HAND, _LEAST_IN_TURN = 0.9, 5.0
_MESSAGES_IN_BATCH = 200
_CALLED = {INBOX: "inbox", BY_HAND: "by hand", IN_TURN: "in turn"}


@dataclass(frozen=True, slots=True)
class Load:
    """The messages that wait in the subscription when a turn begins.

    Attributes:
        name: In the tables.
        keys: Number of sessions.
        events: In each session.
        sessions: That a consumer has at a time.
    """

    name: str
    keys: int
    events: int
    sessions: int

    @property
    def total(self) -> int:
        """Number of events."""
        return self.keys * self.events


@dataclass(slots=True)
class Samples:
    """One candidate's turns: events a second, processor µs for an event, and the broker's share of its core."""

    rates: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)
    broker: list[float] = field(default_factory=list)


class Receiving:
    """The benchmark."""

    name = "receiving"
    about = "events a second that a consumer with inbox receives, against the SDK's receiver by hand, and in turn"

    async def run(self, plan: Plan, live: Live) -> Findings:
        few, many = Load("few sessions", 8, 400, sessions=8), Load("many sessions", 200, 5, sessions=64)
        found: dict[Load, dict[str, Samples]] = {}
        async with Broker(plan.scratch, subscriptions=[SUBSCRIPTION]) as broker:
            repeats = plan.pick(quick=3, full=6)
            for load in (few, many):
                found[load] = await _take_turns(broker, load, (INBOX, BY_HAND), repeats, plan, live)
            # It has one session at a time, whatever waits: a few are enough to know its rate.
            alone = Load(many.name, plan.pick(quick=5, full=20), many.events, sessions=1)
            found[many] |= await _take_turns(broker, alone, (IN_TURN,), repeats, plan, live)
        return findings_of(found)


async def _take_turns(
    broker: Broker, load: Load, kinds: Sequence[str], repeats: int, plan: Plan, live: Live
) -> dict[str, Samples]:
    found = {kind: Samples() for kind in kinds}
    for repeat in range(repeats):
        shift = repeat % len(kinds)
        for kind in (*kinds[shift:], *kinds[:shift]):
            live.step(f"receiving, {load.name}: {_CALLED[kind]}, {repeat + 1} of {repeats}")
            await turn(broker, load, kind, plan.scratch, found[kind])
            live.rate(found[kind].rates[-1], "events/s")
    return found


async def turn(broker: Broker, load: Load, kind: str, scratch: Path, samples: Samples) -> None:
    """Run one turn of a candidate, whose samples are added.

    Raises:
        PartFailed: An effect was missing, or not the next of its key.
        RuntimeError: Not everything was settled, so that the next turn would receive it.
    """
    await fill(broker.connection_string, load.keys, load.events)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        options = {"--events": load.total, "--sessions": load.sessions, "--prefetch": _PREFETCH}
        with broker.on_a_core_of_its_own():
            # It inherits the cores that are left to this process.
            part = await Part.start(
                *("consumer", "verification.bench.consumer", kind, str(Path(folder) / "consumer.sqlite")),
                *(str(each) for pair in options.items() for each in pair),
                log=scratch / "consumer.log",
                environment={"SERVICEBUS": broker.connection_string},
            )
            try:
                before = broker.processor_seconds()
                part.send_line("begin")
                line = await part.output.readline()
                used = broker.processor_seconds() - before
                if not line:
                    await part.wait()
                    raise part.failure("has not measured anything")
            finally:
                await part.stop()
    if left := await broker.waiting(SUBSCRIPTION):
        raise RuntimeError(f"{kind} has left {left} messages, so this measurement is invalid")
    measured = json.loads(line)
    samples.rates.append(load.total / measured["seconds"])
    samples.processor_us.append(measured["processor"] / load.total * 1e6)
    samples.broker.append(used / measured["seconds"])


async def fill(connection_string: str, keys: int, events: int) -> None:
    """Send `events` messages, numbered from 1, to each of `keys` new sessions."""
    prefix = uuid.uuid4().hex[:8]
    async with connect(connection_string) as client, client.get_topic_sender(TOPIC) as sender:
        for each in range(keys):
            key = f"{prefix}-{each:04}-4735-9422-c39a7c4af5c2"
            for first in range(1, events + 1, _MESSAGES_IN_BATCH):
                numbers = range(first, min(first + _MESSAGES_IN_BATCH, events + 1))
                await sender.send_messages([_message(key, number) for number in numbers])


def _message(key: str, number: int) -> ServiceBusMessage:
    """Return a message as the relay sends it.

    It has no number of the entity: the receiver by hand does not look for gaps.
    """
    action, created_at = "ContactNameUpdatedEvent", "2026-02-09T11:37:37.3022907+02:00"
    data = {
        "name": {"firstName": "Jane", "lastName": "Doe"},
        "contactId": key,
        "action": action,
        "number": number,
        "createdAt": created_at,
    }
    return ServiceBusMessage(
        json.dumps(data),
        message_id=f"{key}-{number}",
        session_id=key,
        subject=action,
        content_type="application/json",
        application_properties={"type": "domainEvent", "createdAt": created_at},
    )


def findings_of(found: dict[Load, dict[str, Samples]]) -> Findings:
    """Return the targets, and the table."""
    targets = [
        Target(
            f"{_row_name(load)}: `inbox` against the SDK's receiver by hand",
            _ratios(samples, BY_HAND),
            TIMES,
            Bound.AT_LEAST,
            _LEAST_BY_HAND,
        )
        for load, samples in found.items()
    ]
    targets += [
        Target(
            f"{_row_name(load)}: `inbox` against the SDK's receiver in turn",
            _ratios(samples, IN_TURN),
            TIMES,
            Bound.AT_LEAST,
            _LEAST_IN_TURN,
        )
        for load, samples in found.items()
        if IN_TURN in samples
    ]
    rows = tuple(_row(load, samples) for load, samples in found.items())
    return Findings(targets, [Table("Receiving", _COLUMNS, rows, _prose(found))])


def _row_name(load: Load) -> str:
    return f"{load.name}, SQLite"


def _ratios(samples: dict[str, Samples], other: str) -> tuple[float, ...]:
    return tuple(ours / theirs for ours, theirs in zip(samples[INBOX].rates, samples[other].rates, strict=True))


def _row(load: Load, samples: dict[str, Samples]) -> tuple[str, ...]:
    ours, hand = samples[INBOX], samples[BY_HAND]
    return (
        _row_name(load),
        shown(median(samples[IN_TURN].rates)) if IN_TURN in samples else "-",
        *(f"{median(each.rates):,.0f}" for each in (hand, ours)),
        shown(median(_ratios(samples, BY_HAND))),
        *(f"{median(each.processor_us):.0f}" for each in (hand, ours)),
        *(percent(median(each.broker)) for each in (hand, ours)),
    )


_COLUMNS = (
    "what",
    "in turn, events/s",
    "by hand, events/s",
    "inbox, events/s",
    "inbox to by hand",
    "by hand, µs/event",
    "inbox, µs/event",
    "broker's core: by hand",
    "broker's core: inbox",
)


def _prose(loads: Iterable[Load]) -> str:
    described = "; ".join(
        f"{load.name}: {load.keys:,} with {load.events:,} events each, {load.sessions} at a time" for load in loads
    )
    return (
        f"{described}. All events wait before the clock starts, and it stops at the last effect: a row that "
        "counts a key's events, written in one transaction with the note that the event was handled. µs are "
        "processor time of the consumer's process. SQLite has its write-ahead log and `synchronous = NORMAL`."
    )
