"""How long changes have waited that the relay's leases have not passed, seen over the network."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.ages import LeaseWatch
from relay.config.settings import Settings
from relay.telemetry.gauges import LeaseAges
from tests.integration.conftest import ROOT
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

KEYS = [f"key-{number}" for number in range(20)]
SLOW_S = 600


@pytest.fixture
async def cosmos() -> AsyncIterator[CosmosServer]:
    """An account whose clock is ten minutes slow: whatever waits there has waited for that long."""
    async with CosmosServer(clock=lambda: time.time() - SLOW_S) as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


class Watched:
    """The watch on the account, and what it reports."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.ages = LeaseAges()
        self._watch = LeaseWatch(Settings.from_environment(environment), self.ages)

    async def look(self) -> dict[str, float]:
        await self._watch.look()
        return self.ages.ages_s()


@pytest.fixture
def watched(environment: dict[str, str]) -> Watched:
    return Watched(environment)


def waiting(ages_s: Mapping[str, float]) -> set[str]:
    """The leases of which something has waited for as long as the account's clock is slow."""
    assert all(age_s == 0 or SLOW_S <= age_s < SLOW_S + 300 for age_s in ages_s.values())
    return {lease for lease, age_s in ages_s.items() if age_s}


async def leases_of(trigger: TriggerLeases) -> dict[str, str]:
    """The lease token of each key."""
    store = await trigger.store()
    bounds = {lease.token: lease.partition for lease in await store.all()}
    found = {}
    for key in KEYS:
        first = (await trigger.data.feed_range_from_partition_key(key))["Range"]["min"]
        (found[key],) = [token for token, each in bounds.items() if each.minimum <= first < each.maximum]
    return found


async def write(trigger: TriggerLeases, keys: list[str], name: str) -> None:
    for key in keys:
        await trigger.data.create_item(event(f"{name}-{key}", key))


def deep(levels: int = 70) -> dict[str, Any]:
    """A document that the host cannot hand over."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return event("deep", KEYS[0], deep=value)


async def test_a_stuck_lease_ages_while_the_others_flow(
    environment: dict[str, str], trigger: TriggerLeases, watched: Watched, servicebus: ServiceBusServer
) -> None:
    token_of = await leases_of(trigger)
    settings = environment | {"RELAY_POLL_DELAY_MS": "50"}
    host = Host(
        *(ROOT, settings),
        separate_worker=True,
        lease_acquire_ms=50,
        lease_renew_ms=200,
        lease_expiration_ms=2000,
        shutdown_timeout_s=0.1,
    )
    await trigger.data.create_item(deep())
    await write(trigger, KEYS, "e")
    try:
        await host.start()
        async with asyncio.timeout(WATCHDOG_S):
            while waiting(ages_s := await watched.look()) != {token_of[KEYS[0]]}:
                await look_again()  # the emulated host passes the others meanwhile
    finally:
        await host.stop()

    assert ages_s.keys() == set(token_of.values())
    assert len(ages_s) == 4


async def test_an_outbox_whose_leases_have_passed_everything_waits_for_nothing(
    trigger: TriggerLeases, watched: Watched
) -> None:
    await write(trigger, KEYS, "e")
    tokens = {lease.token for lease in await trigger.pass_all()}

    assert await watched.look() == dict.fromkeys(tokens, 0.0)


async def test_a_lease_that_has_passed_nothing_is_compared_with_the_beginning_of_the_feed(
    trigger: TriggerLeases, watched: Watched
) -> None:
    token_of = await leases_of(trigger)
    await write(trigger, KEYS[:1], "e")

    assert waiting(await watched.look()) == {token_of[KEYS[0]]}


async def test_what_nobody_has_ever_read_waits_too(trigger: TriggerLeases, watched: Watched) -> None:
    empty = await watched.look()
    await write(trigger, KEYS[:1], "e")

    assert empty == {"none": 0.0}
    assert waiting(await watched.look()) == {"none"}


async def test_the_children_of_a_split_are_compared_with_their_parents_lease(
    cosmos: CosmosServer, trigger: TriggerLeases, watched: Watched
) -> None:
    await write(trigger, KEYS, "e")
    await trigger.pass_all()
    before = await watched.look()
    cosmos.account.split(DATABASE, "data", "0")
    after = await watched.look()
    token_of = await leases_of(trigger)
    [key, *_] = [each for each in KEYS if token_of[each] == "0"]
    await write(trigger, [key], "late")

    assert after == before
    assert waiting(await watched.look()) == {"0"}


async def test_a_lease_that_a_split_has_left_behind_is_compared_with_the_feed(
    cosmos: CosmosServer, trigger: TriggerLeases, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """The state of azure-cosmos-dotnet-v3 issue 5604: nobody knows that it has nothing left to deliver."""
    await write(trigger, KEYS, "e")
    await trigger.pass_all()
    [parent] = [each async for each in trigger.leases.read_all_items() if each["id"].endswith("..0")]
    cosmos.account.split(DATABASE, "data", "0")
    await write(trigger, KEYS, "late")
    await trigger.deliver(accept)
    before = await watched.look()
    await trigger.leases.create_item({**parent, "ContinuationToken": None})

    assert "0" not in before
    assert waiting(before) == set()
    assert "relay_leases_overlap" not in caplog.text
    assert [waiting(await watched.look()) for _ in range(2)] == [{"0"}, {"0"}]
    [warning] = [record.message for record in caplog.records if "relay_leases_overlap" in record.message]
    assert "the lease container 'leases' has leases that cover the same keys: " in warning


async def test_two_leases_of_a_merged_partition_are_told_apart(
    cosmos: CosmosServer, trigger: TriggerLeases, watched: Watched
) -> None:
    await write(trigger, KEYS, "e")
    await trigger.pass_all()
    token_of = await leases_of(trigger)
    cosmos.account.merge(DATABASE, "data", ["0", "1"])
    [key, *_] = [each for each in KEYS if token_of[each] == "1"]
    await write(trigger, [key], "late")

    assert waiting(await watched.look()) == {"1"}


async def accept(_documents: list[dict[str, Any]]) -> None:
    """Nothing is to be done with what a lease passes."""


async def test_a_look_costs_what_the_page_says(
    trigger: TriggerLeases, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: defaultdict[str, float] = defaultdict(float)
    sessions: set[aiohttp.ClientSession] = set()
    pages: set[str] = set()
    ask = aiohttp.ClientSession._request

    async def counted(self: Any, method: str, url: Any, **options: Any) -> aiohttp.ClientResponse:
        response = await ask(self, method, url, **options)
        path = urlsplit(str(url)).path
        charged[f"{method} {path}"] += float(response.headers["x-ms-request-charge"])
        sessions.add(self)
        if method == "GET" and path.endswith("/docs/"):
            pages.add(options["headers"]["x-ms-max-item-count"])
        return response

    await write(trigger, KEYS, "e")
    await trigger.pass_all()
    monkeypatch.setattr(aiohttp.ClientSession, "_request", counted)
    await watched.look()

    # Both containers have four physical partitions here.
    assert charged.pop("GET /dbs/outbox/colls/data/docs/") == 4
    assert 8 < charged.pop("POST /dbs/outbox/colls/leases/docs/") < 12
    assert pages == {"1"}
    # Nothing is connected until the next look.
    assert [session.closed for session in sessions] == [True]
    # The account and the containers' definitions.
    assert set(charged) <= {"GET /", "GET /dbs/outbox/colls/data/", "GET /dbs/outbox/colls/leases/"}


async def test_a_look_that_takes_too_long_fails(
    trigger: TriggerLeases, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await trigger.pass_all()
    before = await watched.look()
    monkeypatch.setattr("relay.backends.cosmos.ages._LOOK_TIMEOUT_S", 0.0)
    failing = await watched.look()

    assert failing.keys() == before.keys()
    assert all(failing[token] > before[token] for token in before)
    assert "relay_age_unavailable" in caplog.text


async def test_a_change_of_an_account_whose_clock_is_ahead_has_waited_for_no_time(
    servicebus: ServiceBusServer,
) -> None:
    async with CosmosServer(clock=lambda: time.time() + SLOW_S) as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            trigger = TriggerLeases(client)
            leases = await (await trigger.store()).all()
            await write(trigger, KEYS[:1], "e")
        settings = {"COSMOS": server.connection_string, "SERVICEBUS": servicebus.connection_string}

        assert await Watched(settings).look() == {lease.token: 0.0 for lease in leases}


async def test_a_look_that_fails_lets_the_ages_grow_and_says_why(
    cosmos: CosmosServer,
    account: CosmosClient,
    trigger: TriggerLeases,
    watched: Watched,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await trigger.pass_all()
    before = await watched.look()
    await account.get_database_client(DATABASE).delete_container("leases")
    with caplog.at_level(logging.WARNING, "relay"):
        failing = await watched.look()

    assert failing.keys() == before.keys()
    assert all(failing[token] > before[token] for token in before)
    assert "relay_age_unavailable: the leases in 'leases' cannot be compared with the feed" in caplog.text
    assert "Check that the app may read both. It is tried again in a minute." in caplog.text
