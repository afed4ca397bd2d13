"""`python -m relay smoke`: writes one event, waits for its message, compares the two, and cleans up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from relay import assembly
from relay.canary import TTL_S, canary
from relay.cli.arguments import Commands, reported, with_one_outbox
from relay.cli.comparison import compare
from relay.cli.oversized import OversizedTest
from relay.cli.records import Records, open_records
from relay.cli.session import Session, choose, open_session
from relay.cli.smoke_report import Smoke, result_of
from relay.cli.terminal import Result, Terminal
from relay.clients import ADMIN_VARIABLE, administration_address
from relay.errors import StoreError, UsageError
from relay.outbox import Canary
from relay.quarantine.items import Filter, RecordSummary
from relay.settings import OnPoison, Settings
from relay.times import format_duration, parse_duration

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

# The canary must not expire during the wait.
_LONGEST = timedelta(seconds=TTL_S / 2)

# How often to look into quarantine during the wait.
_LOOK_S = 5.0

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

With an SQL outbox, the event and its outbox row are written in one transaction. This needs a login that may write:
the role changefeed.writers:schema.Table, and the rights to insert into, select from and delete from the event
table. The event is deleted when the relay has passed it; its row in the feed stays.

--oversized then writes an event that is larger than a message may be. It must be quarantined as message-too-large,
and its record is removed. After a pause, five small events must arrive. This raises the alert on quarantined
documents, if there is one."""


def add_to(commands: Commands) -> None:
    """Add the command and its options."""
    summary = "send one event through the deployed app and compare what arrives"
    parser = commands.add("smoke", summary, EXAMPLES, run, one_outbox=True)
    parser.add_argument(
        "--subscription",
        metavar="NAME",
        help="where to receive the event (default: the topic's only subscription, if the Manage right lets the "
        "command find it)",
    )
    parser.add_argument(
        "--timeout",
        type=reported(parse_duration),
        default=timedelta(minutes=1),
        metavar="DURATION",
        help=f"how long to wait, as PT2M, 2m or in seconds; at most {format_duration(_LONGEST)} (default: PT1M)",
    )
    parser.add_argument(
        "--oversized",
        action="store_true",
        help="afterwards write an event that is too large, and small ones behind it",
    )
    parser.add_argument(
        "--pause",
        type=reported(parse_duration),
        default=timedelta(minutes=1),
        metavar="DURATION",
        help=f"between the oversized event and the others; at most {format_duration(_LONGEST)} (default: PT1M)",
    )
    parser.add_argument(
        "--servicebus-admin",
        metavar="ADDRESS",
        help=f"the Service Bus management endpoint, as for check (default: ${ADMIN_VARIABLE})",
    )


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Send a canary through the deployed app.

    Raises:
        UsageError: The subscription or the outbox cannot be used. Nothing was written.
        ServiceError: The outbox or Service Bus cannot be reached, or refuses.
    """
    settings = with_one_outbox(Settings.from_environment(environment), arguments.source)
    timeout: timedelta = arguments.timeout
    if not timedelta(0) < timeout <= _LONGEST:
        raise UsageError(f"--timeout: give a duration above zero, at most {format_duration(_LONGEST)}")
    if arguments.pause > _LONGEST:
        raise UsageError(f"--pause: give at most {format_duration(_LONGEST)}")
    if arguments.oversized and settings.on_poison is OnPoison.BLOCK:
        raise UsageError(
            "--oversized: with RELAY_ON_POISON 'block', the event would block the relay, not be quarantined"
        )
    administration = administration_address(arguments.servicebus_admin, environment)
    subscription = await choose(settings, arguments.subscription, administration)
    document = canary(settings.event_type, datetime.now(UTC))
    # The lock is held through the canary, the oversized event, and the last of the small ones.
    hold_s = timeout.total_seconds() * (7 if arguments.oversized else 1)
    hold_s += arguments.pause.total_seconds() if arguments.oversized else 0
    # Lock the session first: this shows that the subscription can be received from, and keeps consumers away.
    async with (
        open_session(settings, subscription, document["partitionKey"], hold_s) as session,
        assembly.open_canary(settings) as outbox,
    ):
        terminal.note(f"Waiting for the canary on '{subscription}', at most {timeout.total_seconds():g} s.")
        smoke = Smoke(subscription, timeout.total_seconds(), document)
        await _send_through(smoke, session, outbox, settings)
        if arguments.oversized and smoke.unaltered:
            terminal.note("The canary arrived. Writing an event that is too large, and small ones after it.")
            async with open_records(settings) as records:
                test = OversizedTest(outbox, records, session, settings.event_type, timeout.total_seconds())
                smoke.oversized = await test.run(document["partitionKey"], arguments.pause.total_seconds())
    return result_of(smoke, settings)


async def _send_through(smoke: Smoke, session: Session, outbox: Canary, settings: Settings) -> None:
    document = smoke.document
    began = time.monotonic()
    try:
        smoke.document = await outbox.write(document)
        async with open_records(settings) as records:
            found = await _first_found(session, records, document["partitionKey"], smoke.timeout_s)
        if isinstance(found, RecordSummary):
            smoke.quarantined = found
        elif found is not None:
            smoke.latency_s = time.monotonic() - began
            smoke.differences = compare(smoke.document, found, settings.cloudevents_source)
    finally:
        if left := await outbox.remove(document):
            smoke.left_behind.append(left)


async def _first_found(
    session: Session, records: Records, partition_key: str, timeout_s: float
) -> ServiceBusReceivedMessage | RecordSummary | None:
    """The canary's message, or its quarantine record, which is removed; None if neither is there in time."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        message = await session.receive(min(left, _LOOK_S))
        if message is not None:
            return message
        # Only the last look reports that quarantine cannot be read: until then the message may still arrive.
        with suppress(StoreError):
            if record := await _take_from_quarantine(records, partition_key):
                return record
    return await _take_from_quarantine(records, partition_key)


async def _take_from_quarantine(records: Records, partition_key: str) -> RecordSummary | None:
    summaries = await records.find(Filter(partition_key=partition_key))
    for summary in summaries:
        await records.remove(summary)
    return summaries[0] if summaries else None
