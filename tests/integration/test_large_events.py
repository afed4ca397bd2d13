"""Large events with RELAY_LARGE=claim-check, through the real SDKs: Service Bus's emulator, and Azurite."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from azure.cosmos.aio import ContainerProxy
from azure.servicebus import ServiceBusReceivedMessage

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.languages.checks import FOLDER, skip_without
from relay.config.settings import Settings
from relay.core.errors import PublishError
from tests.integration.conftest import BOTH_SENDERS, ROOT, RelayMaker
from tests.support.azurite import Container
from tests.support.broker import refuse, stop_refusing, topic_counts
from tests.support.contract import check_message
from tests.support.operators import relay_command
from tests.support.outbox import event
from tests.support.quarantine import quarantined
from tests.support.sql_deployment import SqlDeployment, working
from tests.support.subscriber import body, properties, received
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.xdist_group("azurite")]

# The topic takes 256 KB.
LARGE = "鍵" * 100_000


def documents(key: str = "k") -> list[dict[str, Any]]:
    """Five events of a key; the third is large."""
    return [event(f"{key}-{n}", key, n=n, text=LARGE if n == 2 else "small") for n in range(5)]


async def content_of(message: ServiceBusReceivedMessage, blobs: Container) -> bytes:
    """The content that a claim names; it is what the claim says."""
    said = properties(message)
    [found] = [each for name, each in (await blobs.stored()).items() if said["dataRef"].endswith(name)]
    assert said["dataLength"] == len(found.body)
    assert said["dataSha256"] == hashlib.sha256(found.body).hexdigest()
    assert said["dataContentType"] == found.content_type == "application/json"
    return found.body


async def check_arrived(
    servicebus: ServiceBusServer, blobs: Container, stored: Callable[[Any], bytes] = orjson.dumps
) -> None:
    """Every event has arrived once, in order, and as it was stored, and the content was stored once."""
    key = "k"
    subscriber = await received(servicebus.connection_string, 5)
    await subscriber.receive_rest(wait_s=0.1)
    messages = subscriber.messages[key]
    assert [message.message_id for message in messages] == [f"{key}-{n}" for n in range(5)]
    for message, document in zip(messages, documents(key), strict=True):
        if message.message_id == f"{key}-2":
            check_message(message, "largeEvent")
            assert body(message) == b""
            assert await content_of(message, blobs) == stored(document["data"])
        else:
            assert body(message) == stored(document["data"])
    assert len(await blobs.stored()) == 1


@BOTH_SENDERS
async def test_a_large_event_arrives_in_its_place_and_its_content_is_in_the_container(
    make_relay: RelayMaker, servicebus: ServiceBusServer, blobs: Container, quarantine: ContainerProxy
) -> None:
    outcome = await make_relay(**blobs.settings).handle(documents(), "i1")

    assert (outcome.published, outcome.sends) == (5, 3)
    assert await quarantined(quarantine) == []
    await check_arrived(servicebus, blobs)


async def test_a_large_cloudevent_names_its_data_by_reference(
    make_relay: RelayMaker, servicebus: ServiceBusServer, blobs: Container
) -> None:
    relay = make_relay(**blobs.settings, RELAY_MESSAGE_FORMAT="cloudevents", RELAY_CLOUDEVENTS_SOURCE="/contacts")

    await relay.handle([documents()[2]], "i1")

    [message] = (await received(servicebus.connection_string, 1)).messages["k"]
    check_message(message, "largeCloudEvent")
    assert properties(message)["cloudEvents:dataref"] == properties(message)["dataRef"]


@pytest.mark.parametrize(
    ("fault", "limit_s", "said"),
    [
        (403, "30", "Storage Blob Data Contributor"),
        ("cut", "30", "Check BLOBS, and the network"),
        ("hang", "5", "check BLOBS and the network"),  # waited for until the limit
    ],
)
async def test_while_a_content_cannot_be_written_its_key_waits_and_no_other(
    make_relay: RelayMaker,
    servicebus: ServiceBusServer,
    blobs: Container,
    quarantine: ContainerProxy,
    fault: int | str,
    limit_s: str,
    said: str,
) -> None:
    blobs.faults = [fault]
    relay = make_relay(**blobs.settings, RELAY_SEND_TIMEOUT_S=limit_s)

    # A temporary error is traced to one event from the fourth attempt.
    for attempt in (0, 3):
        with pytest.raises(PublishError, match="The content of the event 'k-2'") as raised:
            await relay.handle([*documents(), event(f"other-{attempt}", "other")], "i1", attempt)

    assert said in str(raised.value)
    assert "quarantine add" not in str(raised.value)
    assert await quarantined(quarantine) == []
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 2 + 2

    blobs.faults = []
    assert (await relay.handle(documents(), "i1", 4)).published == 3
    subscriber = await received(servicebus.connection_string, 7)
    assert subscriber.ids()["k"] == [f"k-{n}" for n in range(5)]
    assert len(await blobs.stored()) == 1


@pytest.mark.parametrize("fault", ["lost", 503])
async def test_a_content_whose_answer_is_lost_is_written_again_and_published_once(
    make_relay: RelayMaker, servicebus: ServiceBusServer, blobs: Container, fault: int | str
) -> None:
    blobs.faults = [fault, "pass"]

    await make_relay(**blobs.settings).handle(documents(), "i1")

    assert blobs.writes == 2
    await check_arrived(servicebus, blobs)


async def test_a_large_event_of_an_sql_outbox_arrives_in_its_place(
    sql: SqlDeployment, servicebus: ServiceBusServer, blobs: Container
) -> None:
    sql.create("id text primary key, partition_key text not null, data json not null")
    sql.write(*((each["id"], each["partitionKey"], each["data"]) for each in documents()))
    blobs.faults = ["lost", "pass"]
    connections = {"SQL": sql.url, "SQL_SHARDS": "1", "SERVICEBUS": servicebus.connection_string}

    async with working(Settings.from_environment({**connections, **blobs.settings})):
        await sql.until_passed()

    assert blobs.writes == 2
    assert sql.rows("select reason from relay.item") == []
    await check_arrived(servicebus, blobs, lambda data: json.dumps(data).encode())


async def test_a_process_that_ends_between_content_and_message_leaves_what_the_next_one_writes_again(
    make_relay: RelayMaker, servicebus: ServiceBusServer, blobs: Container
) -> None:
    await refuse(servicebus.admin_port, "k-2", "amqp:internal-error")
    with pytest.raises(PublishError):
        await make_relay(**blobs.settings, RELAY_SEND_TIMEOUT_S="5").handle(documents(), "i1")
    before = await blobs.stored()

    await stop_refusing(servicebus.admin_port)
    await make_relay(**blobs.settings).handle(documents(), "i1", 1)

    assert len(before) == 1
    assert await blobs.stored() == before
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 2
    await check_arrived(servicebus, blobs)


async def test_a_consumer_in_node_gets_large_events_whole_and_in_order(
    make_relay: RelayMaker, servicebus: ServiceBusServer, blobs: Container, tmp_path: Path
) -> None:
    skip_without("@azure/service-bus", "@azure/storage-blob")
    page = (ROOT / "docs/large-events.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```js\n(// receive\.mjs\n.*?)```", page, re.DOTALL)
    versions = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name in ("@azure/service-bus", "@azure/storage-blob"):
        assert f"{name}@{versions[name]}" in page
    (tmp_path / "receive.mjs").write_text(program, encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(FOLDER / "node_modules")
    await make_relay(**blobs.settings).handle(documents(), "i1")

    process = await asyncio.create_subprocess_exec(
        *("node", "receive.mjs"),
        cwd=tmp_path,
        env={**os.environ, **blobs.settings, "SERVICEBUS": servicebus.connection_string},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await asyncio.wait_for(process.communicate(), WATCHDOG_S)

    assert process.returncode == 0, errors.decode()
    sizes = [len(json.dumps(each["data"], ensure_ascii=False, separators=(",", ":"))) for each in documents()]
    assert printed.decode().splitlines() == [
        f"k-{n} ContactNameUpdatedEvent {size}" for n, size in enumerate(sizes)
    ]


async def test_what_was_quarantined_as_too_large_can_be_released_once_contents_are_stored(
    make_relay: RelayMaker,
    environment: dict[str, str],
    servicebus: ServiceBusServer,
    blobs: Container,
    quarantine: ContainerProxy,
) -> None:
    outcome = await make_relay().handle([documents()[2]], "i1")
    release = ("quarantine", "release", "--reason", "message-too-large", "--json")

    before = await relay_command(environment, *release)
    after = await relay_command(environment | blobs.settings, *release)

    assert outcome.quarantined == {"message-too-large": 1}
    assert (before.code, [each["reason"] for each in before.json["stillInvalid"]]) == (1, ["message-too-large"])
    assert (after.code, len(after.json["released"])) == (0, 1)
    assert await quarantined(quarantine) == []
    [message] = (await received(servicebus.connection_string, 1)).messages["k"]
    assert await content_of(message, blobs) == orjson.dumps(documents()[2]["data"])
