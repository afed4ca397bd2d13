"""`python -m relay smoke`: writes one event, waits for its message, compares the two, and cleans up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from cyclopts import Parameter

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli import smoke_receiver
from outbox_relay.operator.cli.options import Administration, OneOutbox, Session, command_app, duration
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin, open_records
from outbox_relay.operator.cli.smoke_diff import Difference, compare
from outbox_relay.operator.cli.smoke_receiver import choose, open_session
from outbox_relay.operator.cli.terminal import ExitCode, Result
from outbox_relay.operator.examples import Example, Unplaceable, example
from relay.backends.canary import ACTION, PREFIX, TTL_S, canary, canary_id
from relay.backends.outbox import Canary
from relay.config.clients import administration_address
from relay.config.settings import OnPoison, Settings
from relay.core.documents import SourceDocument
from relay.core.errors import StoreError, UsageError
from relay.core.events import Reason
from relay.core.remedy import Remedy
from relay.core.times import format_duration
from relay.quarantine.items import Filter, RecordSummary

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

# The canary must not expire during the wait.
_LONGEST = timedelta(seconds=TTL_S / 2)

# Seconds between looks into quarantine during the wait.
_LOOK_S = 5.0
_POLL_S = 0.5

# More than a link takes on Standard (256 KB) and on Premium (1 MB), less than the limit of an item (2 MB).
_OVERSIZED_BYTES = 1_500_000

# The small events that follow the oversized one.
_SMALL = 5

_SHOWN_DIFFERENCES = 10

EXAMPLES = """\
examples:
  python -m relay smoke
  python -m relay smoke --subscription all --timeout PT2M
  python -m relay smoke --env-file .local/stack.env --subscription all --json | jq .latencyMs
  python -m relay smoke --subscription all --oversized

Writes one event (action SmokeTest, partition key smoke-...) to the outbox, receives its message from the
subscription, compares the two value for value, and deletes the event. Messages of other sessions are not
touched. The topic's other subscriptions get the event too, so their consumers must ignore actions that they do
not know. The app's identity can only send: this command also needs the right to receive from the subscription.

In an outbox with other fields, the event has them where relay.toml says. With several streams, it is given the
values that the rules of --stream ask for, except an action: give that with --action, if the consumers may get such
an event.

With an SQL outbox, the event and its outbox row are written in one transaction. This needs a login that may write:
the role changefeed.writers:schema.Table, and the rights to insert into, select from and delete from the event
table. The event is deleted when the relay has passed it; its row in the feed stays.

--oversized then writes an event that is larger than a message may be. It must be quarantined as message-too-large,
and its record is removed. After a pause, five small events must arrive. This raises the alert on quarantined
documents, if there is one."""


app = command_app("smoke", EXAMPLES)

_AT_MOST = f"at most {format_duration(_LONGEST)}"


@dataclass(frozen=True, slots=True)
class Oversized:
    """The result of the oversized event and the small ones.

    Attributes:
        reason: The reason in the quarantine record; None if the event was not quarantined in time.
        sent: Number of small events written after the pause; 0 if the test ended before.
        arrived: Number of them that arrived, in order.
        quarantined: The reasons of those that were quarantined instead.
    """

    reason: str | None
    sent: int = 0
    arrived: int = 0
    quarantined: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return self.reason == Reason.MESSAGE_TOO_LARGE and 0 < self.sent == self.arrived


@dataclass(slots=True)
class Smoke:
    """The result of a smoke test.

    Attributes:
        document: The canary as the relay reads it.
        latency_s: From the start of the write to the receipt of the message; None if none arrived.
        differences: Between the stored and the received event.
        quarantined: The canary's quarantine record, if there was one instead of a message.
        left_behind: Items that could not be cleaned up.
        oversized: The result of the oversized event; None if it was not sent.
    """

    subscription: str
    timeout_s: float
    document: SourceDocument
    latency_s: float | None = None
    differences: list[Difference] = field(default_factory=list)
    quarantined: RecordSummary | None = None
    left_behind: list[str] = field(default_factory=list)
    oversized: Oversized | None = None

    @property
    def unaltered(self) -> bool:
        return self.latency_s is not None and not self.differences


@app.default
async def smoke(
    *,
    subscription: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="where to receive the event (default: the topic's only subscription, if the Manage right lets "
            "the command find it)",
        ),
    ] = None,
    timeout: Annotated[
        timedelta, duration(f"how long to wait, as PT2M, 2m or in seconds; {_AT_MOST}")
    ] = timedelta(minutes=1),
    action: Annotated[
        str,
        Parameter(
            metavar="ACTION",
            help="the event's action, where the rules of relay.toml ask for one; consumers that know it will "
            "handle the event",
        ),
    ] = ACTION,
    oversized: bool = False,
    pause: Annotated[timedelta, duration(f"between the oversized event and the others; {_AT_MOST}")] = timedelta(
        minutes=1
    ),
    administration: Administration = None,
    options: OneOutbox = OneOutbox(),
    session: Session,
) -> Result:
    """Send one event through the deployed app and compare what arrives.

    Args:
        oversized: afterwards write an event that is too large, and small ones behind it
    """
    backend = options.backend(session.environment)
    settings, terminal = backend.settings, session.terminal
    _check(settings, timeout, pause, oversized=oversized)
    timeout_s, pause_s = timeout.total_seconds(), pause.total_seconds()
    address = administration_address(administration, session.environment, settings.servicebus.setting)
    made = _taken(canary(settings.policy.event_type, datetime.now(UTC), action), backend)
    subscription = await choose(settings, subscription, address)
    found = Smoke(subscription, timeout_s, made.document)
    key = found.document.fields["partitionKey"]
    # The lock is held through the canary, the oversized event, and the last of the small ones.
    hold_s = timeout_s * (2 + _SMALL) + pause_s if oversized else timeout_s
    # Lock the session first: this shows that the subscription can be received from, and keeps consumers away.
    async with (
        open_session(settings, subscription, key, hold_s) as locked,
        backend.open_canary() as outbox,
        open_records(backend) as records,
    ):
        terminal.note(f"Waiting for the canary on '{subscription}', at most {timeout_s:g} s.")
        test = SmokeTest(found, backend, locked, outbox, records)
        await test.send_canary(made)
        if oversized and found.unaltered:
            terminal.note("The canary arrived. Writing an event that is too large, and small ones after it.")
            await test.send_oversized(pause_s)
    return result_of(found, backend)


def _check(settings: Settings, timeout: timedelta, pause: timedelta, *, oversized: bool) -> None:
    """Raise UsageError if the options cannot be followed."""
    if not timedelta(0) < timeout <= _LONGEST:
        raise UsageError(f"--timeout: give a duration above zero, {_AT_MOST}")
    if pause > _LONGEST:
        raise UsageError(f"--pause: give {_AT_MOST}")
    if oversized and settings.policy.on_poison is OnPoison.BLOCK:
        raise UsageError(
            "--oversized: with RELAY_ON_POISON 'block', the event would block the relay, not be quarantined"
        )
    if oversized and settings.policy.claim_check is not None:
        raise UsageError(
            "--oversized: with RELAY_LARGE 'claim-check', the event would be sent, not be quarantined"
        )


def _taken(document: dict[str, Any], backend: OperatorBackend) -> Example:
    """Return the document as one that the stream takes. Raises UsageError if it cannot be made one."""
    settings, selection = backend.settings, backend.settings.selection
    try:
        found = example(document, selection, is_row=backend.has_rows and selection.fields.names_fields)
    except Unplaceable as why:
        raise UsageError(
            f"relay.toml maps fields of the outbox of the stream {settings.stream!r} in a way that no event of a "
            f"smoke test can have: {why}. Write an event of its own, and see what becomes of it with `",
            Remedy("explain", ("FILE",)),
            "`.",
        ) from why
    if found is None:
        rules = "; ".join(str(route) for route in selection.routes if selection.destination in route.to)
        raise UsageError(
            f"no event of a smoke test is one of the stream {settings.stream!r}, whose rules are: {rules}. Give "
            "--action with an action that its consumers may get, or test another stream."
        )
    return found


@dataclass(slots=True)
class SmokeTest:
    """Writes the events of a smoke test, finds their fate, and deletes them."""

    smoke: Smoke
    backend: OperatorBackend
    session: smoke_receiver.Session
    outbox: Canary
    records: QuarantineAdmin

    async def send_canary(self, made: Example) -> None:
        """Write the canary, and wait for its message or its quarantine record."""
        smoke = self.smoke
        began = time.monotonic()
        async with self._written(made) as smoke.document:
            found = await self._first_found(smoke.document.fields["partitionKey"])
            latency_s = time.monotonic() - began
        if isinstance(found, RecordSummary):
            smoke.quarantined = found
        elif found is not None:
            smoke.latency_s = latency_s
            smoke.differences = compare(smoke.document, found, self.backend.settings.policy.cloudevents_source)

    async def _first_found(self, partition_key: str) -> ServiceBusReceivedMessage | RecordSummary | None:
        """Return the canary's message, or its quarantine record, which is removed.

        Returns None if neither is there in time.
        """
        deadline = time.monotonic() + self.smoke.timeout_s
        while (left := deadline - time.monotonic()) > 0:
            message = await self.session.receive(min(left, _LOOK_S))
            if message is not None:
                return message
            # Only the last look reports that quarantine cannot be read: until then the message may still arrive.
            with suppress(StoreError):
                if await self.records.find(Filter(partition_key=partition_key)):
                    break
        return next(iter(await self._take(partition_key)), None)

    async def send_oversized(self, pause_s: float) -> None:
        """Write an event that is too large for a message; once it is quarantined, pause, and write small ones.

        Service Bus refuses an oversized message and detaches the sender's link. The SDK notices while the sender
        is idle, and raises the error of the detached link for the next message (azure-sdk-for-python issue 37916).
        A relay that takes this for the outcome of that message quarantines valid events.
        """
        reason = await self._quarantine_oversized()
        self.smoke.oversized = Oversized(reason)
        if reason != Reason.MESSAGE_TOO_LARGE:
            return
        await asyncio.sleep(pause_s)
        key = self.smoke.document.fields["partitionKey"]
        arrived = [await self._send_small(key) for _ in range(_SMALL)]
        quarantined = [summary.reason for summary in await self._take(key)]
        self.smoke.oversized = Oversized(reason, _SMALL, sum(arrived), quarantined)

    async def _quarantine_oversized(self) -> str | None:
        async with self._written(self._event(f"{PREFIX}{uuid4()}", "x" * _OVERSIZED_BYTES)) as document:
            deadline = time.monotonic() + self.smoke.timeout_s
            while not (summaries := await self._take(document.fields["partitionKey"])):
                if time.monotonic() > deadline:
                    return None
                await asyncio.sleep(_POLL_S)
        return summaries[0].reason

    async def _send_small(self, partition_key: str) -> bool:
        async with self._written(self._event(partition_key, "small")) as document:
            message = await self.session.receive(self.smoke.timeout_s)
        return message is not None and message.message_id == document.fields["id"]

    def _event(self, partition_key: str, text: str) -> Example:
        action = self.smoke.document.action
        document = {
            "id": canary_id(),
            "partitionKey": partition_key,
            "type": self.backend.settings.policy.event_type,
            "ttl": TTL_S,
            "data": {"action": action, "createdAt": datetime.now(UTC).isoformat(), "text": text},
        }
        return _taken(document, self.backend)

    async def _take(self, partition_key: str) -> list[RecordSummary]:
        """Remove the key's quarantine records, unpark the key, and return the records."""
        summaries = await self.records.find(Filter(partition_key=partition_key))
        for summary in summaries:
            await self.records.remove(summary)
        if summaries:
            await self.records.unpark(partition_key)
        return summaries

    @asynccontextmanager
    async def _written(self, made: Example) -> AsyncIterator[SourceDocument]:
        """An event as the relay reads it, which is deleted at the end of the block."""
        try:
            yield await self.outbox.write(made.stored)
        finally:
            if left := await self.outbox.remove(made.stored):
                self.smoke.left_behind.append(left)


def result_of(smoke: Smoke, backend: OperatorBackend) -> Result:
    """Return the lines to print, and the exit code. A line that begins with `-> ` is a remedy."""
    lines = _canary_lines(smoke, backend)
    if smoke.oversized is not None:
        lines += _oversized_lines(smoke.oversized)
    data: dict[str, Any] = {
        "subscription": smoke.subscription,
        "id": smoke.document.fields["id"],
        "partitionKey": smoke.document.fields["partitionKey"],
        "arrived": smoke.latency_s is not None,
        "latencyMs": None if smoke.latency_s is None else round(smoke.latency_s * 1000),
        "differences": [difference.data() for difference in smoke.differences],
        "quarantined": None if smoke.quarantined is None else smoke.quarantined.reason,
        "remedies": [line.removeprefix("-> ") for line in lines if line.startswith("-> ")],
        "oversized": None if smoke.oversized is None else asdict(smoke.oversized),
        "leftBehind": smoke.left_behind,
    }
    lines += [f"not deleted{backend.wording.expiry}: {each}" for each in smoke.left_behind]
    passed = smoke.unaltered and (smoke.oversized is None or smoke.oversized.ok)
    return Result(ExitCode.OK if passed else ExitCode.FINDINGS, data, lines)


def _canary_lines(smoke: Smoke, backend: OperatorBackend) -> list[str]:
    if smoke.unaltered and smoke.latency_s is not None:
        milliseconds = round(smoke.latency_s * 1000)
        return [f"ok: the event arrived on '{smoke.subscription}' unaltered, {milliseconds} ms after its write"]
    if smoke.differences:
        return _altered_lines(smoke)
    if smoke.quarantined is not None:
        return [
            f"quarantined: {smoke.quarantined.reason}: {smoke.quarantined.detail}",
            "-> The canary is a valid event: check that the deployed app is this version of the relay.",
        ]
    return [
        f"missing: no message arrived on '{smoke.subscription}' within {smoke.timeout_s:g} s",
        *_where_to_look(backend),
        *_rules(smoke, backend.settings),
        "-> While the relay works through a backlog, the canary waits behind it: set a longer --timeout.",
    ]


def _rules(smoke: Smoke, settings: Settings) -> list[str]:
    if settings.servicebus.is_queue:
        return []
    subject = smoke.document.action
    return [f"-> Check that the rules of '{smoke.subscription}' match an event with the subject {subject}."]


def _altered_lines(smoke: Smoke) -> list[str]:
    count = len(smoke.differences)
    lines = [f"altered: the event arrived on '{smoke.subscription}', but {count} value(s) differ"]
    lines += [
        f"  {difference.path}: stored {difference.stored}, arrived {difference.arrived}"
        for difference in smoke.differences[:_SHOWN_DIFFERENCES]
    ]
    if count > _SHOWN_DIFFERENCES:
        lines.append(f"  and {count - _SHOWN_DIFFERENCES} more")
    return [*lines, *dict.fromkeys(f"-> {difference.remedy}" for difference in smoke.differences)]


def _where_to_look(backend: OperatorBackend) -> list[str]:
    settings, wording = backend.settings, backend.wording
    if settings.label is not None:
        return [
            f"-> Check that {wording.runs}.",
            f"-> Check that it was deployed with this relay.toml, in which the stream {settings.stream!r} leads "
            f"from {wording.settings} to {settings.servicebus.destination}.",
        ]
    return [
        f"-> Check that {wording.runs}.",
        f"-> Check that it has these settings: {wording.settings}, "
        f"RELAY_EVENT_TYPE '{settings.policy.event_type}', SERVICEBUS_TOPIC '{settings.servicebus.entity}'.",
    ]


def _oversized_lines(oversized: Oversized) -> list[str]:
    if oversized.ok:
        return [f"ok: an oversized event was quarantined, and {oversized.sent} small ones after it arrived"]
    if oversized.reason is None:
        return [
            "missing: the oversized event was not quarantined",
            "-> Check that RELAY_ON_POISON is not 'block' in the deployed app, and read its log. A Premium topic "
            "with large messages accepts an event of any size that the outbox stores.",
        ]
    if oversized.reason != Reason.MESSAGE_TOO_LARGE:
        return [
            f"quarantined: the oversized event, as {oversized.reason}, not as {Reason.MESSAGE_TOO_LARGE}",
            "-> Check that the deployed app is this version of the relay.",
        ]
    reasons = ", ".join(oversized.quarantined) or "none quarantined"
    return [
        f"missing: after an oversized event only {oversized.arrived} of {oversized.sent} small ones arrived "
        f"({reasons})",
        "-> A sender keeps refusing messages: check that the deployed app is this version of the relay.",
    ]
