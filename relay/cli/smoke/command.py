"""`python -m relay smoke`: write one event, wait for its message, compare the two, clean up."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from relay.cli.check.administration import administration_address
from relay.cli.console import Console
from relay.cli.containers import open_container, telling_service_errors
from relay.cli.quarantine.records import Filter, Head, Records, open_records
from relay.cli.results import ExitCode, Result
from relay.cli.smoke.canary import TTL_S, canary
from relay.cli.smoke.comparison import Difference, compare
from relay.cli.smoke.oversized import Oversized, OversizedTest
from relay.cli.smoke.subscriptions import Session, choose, open_session
from relay.cli.times import format_duration, parse_duration
from relay.errors import ServiceError, UsageError
from relay.settings import OnPoison, Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy
    from azure.servicebus import ServiceBusReceivedMessage

_SHOWN_DIFFERENCES = 10

# A canary must not expire while it is waited for.
_LONGEST = timedelta(seconds=TTL_S / 2)

# Cleaning up is bounded, so that Ctrl-C ends the command; what stays behind expires by itself.
_CLEAN_UP_S = 10.0

# Between two looks into quarantine, while the message is waited for.
_LOOK_S = 5.0

EXAMPLES = """\
examples:
  python -m relay smoke
  python -m relay smoke --subscription all --timeout PT2M
  python -m relay smoke --env-file .local/stack.env --subscription all --json | jq .latencyMs
  python -m relay smoke --subscription all --oversized

Writes one event (action SmokeTest, partition key smoke-…) to the outbox, receives its message from the
subscription, compares them value for value, and deletes the event. Only that session is received from. The other
subscriptions of the topic get the event too: their consumers must be able to pass over an action that they do not
know. The app's identity may only send: this needs the right to receive from the subscription as well.

With --oversized one event follows that is larger than a message may be. It has to come to the quarantine as
message-too-large, from which it is removed, and after a pause five small ones have to arrive. That raises the
alert on quarantined documents, if there is one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `smoke`."""
    parser.add_argument(
        "--subscription",
        metavar="NAME",
        help="where to wait for the event; the topic's only one by default, which takes the Manage right to find",
    )
    parser.add_argument(
        "--timeout",
        type=parse_duration,
        default=timedelta(minutes=1),
        metavar="DURATION",
        help=f"how long to wait, as PT2M or in seconds, {format_duration(_LONGEST)} at most (PT1M)",
    )
    parser.add_argument(
        "--oversized", action="store_true", help="then send an event that is too large, and small ones after it"
    )
    parser.add_argument(
        "--pause",
        type=parse_duration,
        default=timedelta(minutes=1),
        metavar="DURATION",
        help=f"between the oversized event and the small ones, {format_duration(_LONGEST)} at most (PT1M)",
    )
    parser.add_argument(
        "--servicebus-admin",
        metavar="ADDRESS",
        help="the Service Bus management endpoint, as for check",
    )


@dataclass(slots=True)
class Smoke:
    """What became of the canary.

    Attributes:
        document: As Cosmos DB has stored it.
        latency_s: From the beginning of the write to the receipt of the message; None where none came.
        differences: Between what was stored and what arrived.
        quarantined: Its quarantine record, if it was found there instead.
        left_behind: What could not be cleaned up.
        oversized: What became of the oversized event; None where it was not sent.
    """

    subscription: str
    timeout_s: float
    document: dict[str, Any]
    latency_s: float | None = None
    differences: list[Difference] = field(default_factory=list)
    quarantined: Head | None = None
    left_behind: list[str] = field(default_factory=list)
    oversized: Oversized | None = None

    @property
    def whole(self) -> bool:
        """Whether the canary arrived unaltered."""
        return self.latency_s is not None and not self.differences


async def run(
    arguments: argparse.Namespace, settings: Settings, environment: Mapping[str, str], console: Console
) -> Result:
    """Send a canary through the deployed app.

    Raises:
        UsageError: The subscription cannot be used for this. Nothing was written.
        ServiceError: Cosmos DB or Service Bus cannot be reached, or refuses.
    """
    timeout: timedelta = arguments.timeout
    if not timedelta(0) < timeout <= _LONGEST:
        raise UsageError(f"--timeout: give a duration above zero, {format_duration(_LONGEST)} at most")
    if arguments.pause > _LONGEST:
        raise UsageError(f"--pause: give {format_duration(_LONGEST)} at most")
    if arguments.oversized and settings.on_poison is OnPoison.BLOCK:
        raise UsageError(
            "--oversized: with RELAY_ON_POISON 'block' the event would stop the relay, not be set aside"
        )
    administration = administration_address(arguments.servicebus_admin, environment)
    subscription = await choose(settings, arguments.subscription, administration)
    document = canary(settings.event_type, datetime.now(UTC))
    # The lock is held through the canary, the oversized event, and the last of the small ones.
    hold_s = timeout.total_seconds() * (7 if arguments.oversized else 1)
    hold_s += arguments.pause.total_seconds() if arguments.oversized else 0
    # The session's lock first: it shows that the subscription can be received from, and keeps consumers away.
    async with (
        open_session(settings, subscription, document["partitionKey"], hold_s) as session,
        open_container(settings, settings.cosmos_container) as container,
    ):
        console.note(f"Waiting for the canary on '{subscription}', {timeout.total_seconds():g} s at most.")
        smoke = await _send_through(document, session, container, settings, subscription, timeout.total_seconds())
        if arguments.oversized and smoke.whole:
            console.note("The canary arrived. Sending an event that is too large, and small ones after it.")
            async with open_records(settings) as records:
                test = OversizedTest(container, records, session, settings.event_type, timeout.total_seconds())
                smoke.oversized = await test.run(document["partitionKey"], arguments.pause.total_seconds())
    return result_of(smoke, settings)


async def _send_through(
    document: dict[str, Any],
    session: Session,
    container: ContainerProxy,
    settings: Settings,
    subscription: str,
    timeout_s: float,
) -> Smoke:
    smoke = Smoke(subscription, timeout_s, document)
    began = time.monotonic()
    try:
        with telling_service_errors(container.id):
            smoke.document = dict(await container.create_item(document))
        async with open_records(settings) as records:
            found = await _first_found(session, records, document["partitionKey"], timeout_s)
        if isinstance(found, Head):
            smoke.quarantined = found
        elif found is not None:
            smoke.latency_s = time.monotonic() - began
            smoke.differences = compare(smoke.document, found, settings.cloudevents_source)
    finally:
        await _delete(container, smoke)
    return smoke


async def _first_found(
    session: Session, records: Records, partition_key: str, timeout_s: float
) -> ServiceBusReceivedMessage | Head | None:
    """The canary's message, or its quarantine record, which is removed; None where neither comes in time."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        message = await session.receive(min(left, _LOOK_S))
        if message is not None:
            return message
        # A quarantine that cannot be read is told of by the last look: the message may still come.
        with suppress(ServiceError):
            if record := await _take_from_quarantine(records, partition_key):
                return record
    return await _take_from_quarantine(records, partition_key)


async def _take_from_quarantine(records: Records, partition_key: str) -> Head | None:
    heads = await records.heads(Filter(partition_key=partition_key))
    for head in heads:
        await records.remove(head)
    return heads[0] if heads else None


async def _delete(container: ContainerProxy, smoke: Smoke) -> None:
    from azure.cosmos.exceptions import CosmosResourceNotFoundError

    identifier, partition_key = smoke.document["id"], smoke.document["partitionKey"]
    try:
        async with asyncio.timeout(_CLEAN_UP_S):
            with telling_service_errors(container.id):
                try:
                    await container.delete_item(identifier, partition_key=partition_key)
                except CosmosResourceNotFoundError:
                    return
    except (ServiceError, TimeoutError):
        smoke.left_behind.append(f"document {identifier!r} of {partition_key!r}")


def result_of(smoke: Smoke, settings: Settings) -> Result:
    """What to print."""
    remedies = list(dict.fromkeys(difference.remedy for difference in smoke.differences))
    if smoke.latency_s is None:
        lines = _missing_lines(smoke, settings)
        remedies = lines[1:]
    elif smoke.differences:
        lines = _altered_lines(smoke, remedies)
    else:
        milliseconds = round(smoke.latency_s * 1000)
        lines = [f"ok: the event arrived on '{smoke.subscription}' unaltered, {milliseconds} ms after its write"]
    left_behind = list(smoke.left_behind)
    if smoke.oversized is not None:
        its_lines = smoke.oversized.lines()
        lines += its_lines
        remedies += its_lines[1:]
        left_behind += smoke.oversized.left_behind
    lines += [f"left behind, and gone within {TTL_S} s: {each}" for each in left_behind]
    passed = smoke.whole and (smoke.oversized is None or smoke.oversized.ok)
    data: dict[str, Any] = {
        "subscription": smoke.subscription,
        "id": smoke.document["id"],
        "partitionKey": smoke.document["partitionKey"],
        "arrived": smoke.latency_s is not None,
        "latencyMs": None if smoke.latency_s is None else round(smoke.latency_s * 1000),
        "differences": [difference.data() for difference in smoke.differences],
        "quarantined": None if smoke.quarantined is None else smoke.quarantined.reason,
        "remedies": [remedy.removeprefix("-> ") for remedy in remedies],
        "oversized": None if smoke.oversized is None else smoke.oversized.data(),
        "leftBehind": left_behind,
    }
    return Result(ExitCode.OK if passed else ExitCode.FINDINGS, data, lines)


def _altered_lines(smoke: Smoke, remedies: list[str]) -> list[str]:
    lines = [f"altered: the event arrived on '{smoke.subscription}', but {len(smoke.differences)} value(s) differ"]
    lines += [
        f"  {difference.path}: stored {difference.stored}, arrived {difference.arrived}"
        for difference in smoke.differences[:_SHOWN_DIFFERENCES]
    ]
    if len(smoke.differences) > _SHOWN_DIFFERENCES:
        lines.append(f"  and {len(smoke.differences) - _SHOWN_DIFFERENCES} more")
    return [*lines, *(f"-> {remedy}" for remedy in remedies)]


def _missing_lines(smoke: Smoke, settings: Settings) -> list[str]:
    if smoke.quarantined is not None:
        return [
            f"quarantined: {smoke.quarantined.reason}: {smoke.quarantined.detail}",
            "-> A canary is a valid event: see that the deployed app is this version of the relay.",
        ]
    return [
        f"missing: no message came to '{smoke.subscription}' within {smoke.timeout_s:g} s",
        "-> See that the function app runs, and what its log says of the last invocation (action relay_failed).",
        f"-> See that it has these settings: COSMOS_CONTAINER '{settings.cosmos_container}', RELAY_EVENT_TYPE "
        f"'{settings.event_type}', SERVICEBUS_TOPIC '{settings.servicebus_topic}'.",
        f"-> See that the rules of '{smoke.subscription}' let an event with the subject SmokeTest through.",
        "-> While the relay works off a backlog, the canary waits behind it: give a longer --timeout.",
    ]
