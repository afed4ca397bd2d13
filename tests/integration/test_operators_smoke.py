"""`python -m relay smoke` on the local stack: what passes, what fails, and what it says to do."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.inbox.event_loop import end_tasks
from outbox_relay.operator.cli.smoke import SmokeTest
from outbox_relay.operator.examples import Example
from relay.backends import assembly, canary
from relay.backends.cosmos.backend import CosmosRelay
from tests.support.app import copy_app, without_date_setting
from tests.support.broker import admin, refuse, topic_counts
from tests.support.operators import SMOKE, Run, relay_command
from tests.support.outbox import event
from tests.support.quarantine import quarantined
from tests.support.subscriber import received
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

APP = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"RELAY_POLL_DELAY_MS": "100"}


class Running:
    """The function app under a host in this process."""

    def __init__(self, app: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._host = Host(app, environment, lease_acquire_ms=200, lease_renew_ms=1000, lease_expiration_ms=5000)
        self._relays: list[CosmosRelay] = []
        make = assembly.assemble

        def remember(*given: Any) -> CosmosRelay:
            self._relays.append(make(*given))
            return self._relays[-1]

        monkeypatch.setattr("relay.backends.assembly.assemble", remember)

    async def __aenter__(self) -> None:
        await self._host.start()

    async def __aexit__(self, *_: object) -> None:
        await self._host.stop()
        for relay in self._relays:
            await relay.close()


async def documents(container: ContainerProxy) -> list[dict[str, Any]]:
    return await quarantined(container)


async def smoke(environment: dict[str, str], *words: str) -> Run:
    return await relay_command(environment, *SMOKE, *words)


async def test_on_the_local_stack_the_canary_arrives_unaltered_and_nothing_is_left_of_it(
    environment: dict[str, str],
    container: ContainerProxy,
    quarantine: ContainerProxy,
    servicebus: ServiceBusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Running(APP, environment, monkeypatch):
        run = await smoke(environment, "--json")

    assert (run.code, run.json["differences"], run.json["leftBehind"]) == (0, [], [])
    assert run.json["arrived"] is True
    assert run.json["latencyMs"] > 0
    assert await documents(container) == await documents(quarantine) == []
    held = await admin(servicebus.admin_port, "GET", "entities")
    subscription = held["domain-events/Subscriptions/all"]
    assert (subscription["active"], subscription["locked"], subscription["dead_letter"]) == (0, 0, 0)


async def test_it_passes_with_cloudevents_too(
    environment: dict[str, str], cosmos: CosmosServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment |= {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}
    async with Running(APP, environment, monkeypatch):
        run = await smoke(environment)

    assert run.code == 0
    assert run.out.startswith("ok: the event arrived on 'all' unaltered, ")


async def test_without_the_date_setting_it_fails_and_names_the_setting(
    environment: dict[str, str], container: ContainerProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = without_date_setting(copy_app(tmp_path / "app"))
    async with Running(app, environment, monkeypatch):
        run = await smoke(environment)

    assert run.code == 1
    assert "data.dates.sevenZeros: stored " in run.out
    (remedy,) = [line for line in run.out.splitlines() if line.startswith("-> ")]
    assert "dateParseHandling to None in the host.json" in remedy
    assert await documents(container) == []


async def test_a_relay_with_other_settings_is_found_out_by_the_properties(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}
    async with Running(APP, environment | other, monkeypatch):
        run = await smoke(environment, "--json")

    assert run.code == 1
    assert {difference["path"].partition(":")[0] for difference in run.json["differences"]} == {
        "application_properties.cloudEvents"
    }
    assert "RELAY_MESSAGE_FORMAT" in run.json["remedies"][0]


async def test_other_sessions_of_the_subscription_are_left_alone(
    environment: dict[str, str],
    container: ContainerProxy,
    servicebus: ServiceBusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Running(APP, environment, monkeypatch):
        await container.create_item(event("1", "a"))
        run = await smoke(environment)

    assert run.code == 0
    subscriber = await received(servicebus.connection_string, 1)
    assert subscriber.ids() == {"a": ["1"]}
    assert [message.delivery_count for message in subscriber.messages["a"]] == [0]


async def test_an_event_that_was_quarantined_is_reported_with_its_reason_and_its_record_removed(
    environment: dict[str, str],
    container: ContainerProxy,
    quarantine: ContainerProxy,
    servicebus: ServiceBusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def accept_others_between() -> None:
        # That others are accepted between its refusals shows that the canary is refused for what it holds.
        # They are of many keys, so that some are in another physical partition, and do not wait behind it.
        for refusals in itertools.count(1):
            while (await topic_counts(servicebus.admin_port))["refused"] < refusals:
                await asyncio.sleep(0.05)  # the broker is in this process, but does not announce what it refuses
            for number in range(8):
                await container.create_item(event(f"other-{refusals}", f"other-{number}"))

    identifier = canary.canary_id()
    monkeypatch.setattr(canary, "canary_id", lambda: identifier)
    await refuse(servicebus.admin_port, identifier, "amqp:not-allowed")
    async with Running(APP, environment | {"RELAY_POLL_DELAY_MS": "1000"}, monkeypatch):
        accepting = asyncio.create_task(accept_others_between())
        run = await relay_command(environment, *SMOKE, "--json")
        await end_tasks([accepting])

    assert (run.code, run.json["arrived"], run.json["quarantined"]) == (1, False, "message-refused")
    assert {each["partitionKey"] for each in await documents(container)} == {
        f"other-{number}" for number in range(8)
    }
    assert await documents(quarantine) == []


async def test_without_a_subscription_the_topics_only_one_is_taken(
    cosmos: CosmosServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with ServiceBusServer(
        Entities.from_file(only_subscription(tmp_path, requires_session=True))
    ) as servicebus:
        environment = {
            "COSMOS": cosmos.connection_string,
            "SERVICEBUS": servicebus.connection_string,
            "RELAY_POLL_DELAY_MS": "100",
        }
        options = (
            "--servicebus-admin",
            f"http://127.0.0.1:{servicebus.admin_port}",
            "--timeout",
            str(WATCHDOG_S),
            "--json",
        )
        async with Running(APP, environment, monkeypatch):
            run = await relay_command(environment, "smoke", *options)

    assert (run.code, run.json["subscription"]) == (0, "only")


async def test_a_subscription_without_sessions_is_refused_before_anything_is_written(
    cosmos: CosmosServer, container: ContainerProxy, tmp_path: Path
) -> None:
    async with ServiceBusServer(
        Entities.from_file(only_subscription(tmp_path, requires_session=False))
    ) as servicebus:
        environment = {"COSMOS": cosmos.connection_string, "SERVICEBUS": servicebus.connection_string}
        run = await relay_command(environment, "smoke", "--subscription", "only")
        assert (await topic_counts(servicebus.admin_port))["accepted"] == 0

    assert run.code == 2
    assert "does not require sessions" in run.err
    assert await documents(container) == []


def only_subscription(folder: Path, *, requires_session: bool) -> Path:
    """An entities file with a topic of one subscription."""
    path = folder / "Config.json"
    flag = "true" if requires_session else "false"
    path.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "n", "Topics": [{"Name": "domain-events", "Properties": '
        '{"RequiresDuplicateDetection": true}, "Subscriptions": [{"Name": "only", "Properties": '
        f'{{"RequiresSession": {flag}}}}}]}}]}}]}}}}'
    )
    return path


async def test_an_oversized_event_is_quarantined_and_small_ones_after_it_arrive(
    environment: dict[str, str],
    container: ContainerProxy,
    quarantine: ContainerProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Running(APP, environment, monkeypatch):
        run = await smoke(environment, "--oversized", "--pause", "1", "--json")

    assert (run.code, run.json["leftBehind"]) == (0, [])
    assert run.json["oversized"] == {"reason": "message-too-large", "sent": 5, "arrived": 5, "quarantined": []}
    assert await documents(container) == await documents(quarantine) == []


async def test_where_poison_parks_its_key_nothing_stays_parked(
    environment: dict[str, str], quarantine: ContainerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment |= {"RELAY_ON_POISON": "park"}
    async with Running(APP, environment, monkeypatch):
        run = await smoke(environment, "--oversized", "--pause", "0")

    assert run.code == 0
    assert "ok: an oversized event was quarantined, and 5 small ones after it arrived" in run.out
    assert await documents(quarantine) == []


async def test_small_events_that_are_refused_after_it_are_reported(
    environment: dict[str, str],
    quarantine: ContainerProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outbox_relay.operator.cli.smoke._SMALL", 2)
    # As a relay would have it whose sender continues refusing: the small ones are no events.
    make = SmokeTest._event

    def unsound(test: SmokeTest, partition_key: str, text: str) -> Example:
        made = make(test, partition_key, text)
        return replace(made, stored={**made.stored, "data": "nothing"}) if text == "small" else made

    monkeypatch.setattr(SmokeTest, "_event", unsound)
    async with Running(APP, environment, monkeypatch):
        run = await smoke(environment, "--timeout", "3", "--oversized", "--pause", "0", "--json")

    assert run.code == 1
    oversized = run.json["oversized"]
    assert (oversized["arrived"], oversized["sent"]) == (0, 2)
    assert oversized["quarantined"] == ["data-not-object"] * 2
    assert any("keeps refusing" in remedy for remedy in run.json["remedies"])
    assert await documents(quarantine) == []
