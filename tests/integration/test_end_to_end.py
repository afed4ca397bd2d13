"""function_app.py under the Functions host, from a write to a subscriber."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.servicebus.server import ServiceBusServer
from relay.core.errors import PublishError
from relay.core.events import Reason
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse
from tests.support.outbox import event, events
from tests.support.quarantine import quarantined
from tests.support.stacks import running_stack
from tests.support.subscriber import received

# Every reason, with a document that has it. Those of `id` cannot be stored in Cosmos DB, which wants a string of
# 1 to 1023 bytes; a relay is given them all the same.
MALFORMED: dict[str, dict[str, Any]] = {
    "id-missing": {"id": ...},
    "id-not-string": {"id": 7},
    "id-empty": {"id": ""},
    "id-too-long": {"id": "x" * 129},
    "partition-key-missing": {"partitionKey": ...},
    "partition-key-not-string": {"partitionKey": 4.5},
    "partition-key-empty": {"partitionKey": ""},
    "partition-key-too-long": {"partitionKey": "k" * 129},
    "data-not-object": {"data": [1, 2]},
    "action-not-string": {"data": {"action": 5}},
    "property-not-unicode": {"data": {"action": "A", "createdAt": "\ud800"}},
    "properties-too-large": {"data": {"action": "A", "createdAt": "x" * 15_001}},
    "message-too-large": {"data": {"action": "A", "text": "x" * 300_000}},
    "message-refused": {"id": "refused"},
}
# Not what a document has, but what the relay or an operator decided.
DECISIONS = {"key-parked", "set-aside", "not-mapped", "no-route"}
# The host's gRPC replaces half of a surrogate pair with U+FFFD.
NOT_STORABLE = {"id-missing", "id-not-string", "id-empty", "property-not-unicode"}


def malformed(reason: str) -> dict[str, Any]:
    document = event(f"bad-{reason}", "a") | MALFORMED[reason]
    return {name: value for name, value in document.items() if value is not ...}


def test_there_is_a_malformed_document_for_every_reason() -> None:
    assert MALFORMED.keys() == {str(reason) for reason in Reason} - DECISIONS


@pytest.mark.parametrize("reason", list(MALFORMED))
async def test_a_document_with_any_defect_is_quarantined_while_its_neighbours_arrive(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy, reason: str
) -> None:
    await refuse(servicebus.admin_port, "refused", "amqp:not-allowed")
    before, after = events("a", 2)

    documents = [before, malformed(reason), after]
    relay = make_relay()

    for attempt in range(3):
        # What the service refuses is set aside at its third refusal, where it accepts others in between.
        with nullcontext() if attempt == 2 or reason != "message-refused" else pytest.raises(PublishError):
            await relay.handle(documents, "i1", attempt)
        await relay.handle([event(f"other-{attempt}", "b")], f"other-{attempt}")

    (record,) = await quarantined(quarantine)
    assert (record["reason"], record["document"]) == (reason, malformed(reason))
    subscriber = await received(servicebus.connection_string, 5)
    await subscriber.receive_rest()
    assert subscriber.ids()["a"] == ["a-0", "a-1"]


async def test_what_is_malformed_in_the_container_ends_in_quarantine_and_the_rest_arrives(tmp_path: Path) -> None:
    async with running_stack(tmp_path / "logs") as running:
        data = running.container("data")
        # What the service refuses takes further events as evidence (test_refusals.py).
        stored = [reason for reason in MALFORMED if reason not in NOT_STORABLE | {"message-refused"}]
        for number, reason in enumerate(stored):
            await data.create_item(event(f"good-{number}", "a"))
            await data.create_item(malformed(reason))
        subscriber = await received(running.stack.settings["SERVICEBUS"], len(stored))
        await running.until_function(lambda status: status["documents_delivered"] >= 2 * len(stored))
        records = await quarantined(running.container("quarantine"))

    assert sorted(record["reason"] for record in records) == sorted(stored)
    assert subscriber.ids() == {"a": [f"good-{number}" for number in range(len(stored))]}
    for record in records:
        assert record["document"]["type"] == "domainEvent"
        assert record["invocationId"]
