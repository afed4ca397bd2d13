"""A Cosmos DB account that takes connections and does not answer: each attempt ends, and a later one succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.gateway import Gateway
from outbox_relay.emulators.cosmos.messages import Reply, Request
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.config.settings import Settings
from relay.core.errors import LeaseError, QuarantineError, StoreError
from relay.quarantine.items import Filter
from tests.integration.conftest import RelayMaker
from tests.support.network import Network
from tests.support.outbox import event, just_committed
from tests.support.quarantine import quarantined

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

SERVICEBUS = "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ=="
LIMIT_S = 2.0

# The SDK by itself gives up after minutes.
SOON_S = 5 * LIMIT_S

OLD: dict[str, Any] = event("old", "k") | {"_ts": 1_700_000_000, "_lsn": 1}
INVALID: dict[str, Any] = event("invalid", "k") | {"data": 7}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays wait for an answer for two seconds, not for ten."""
    monkeypatch.setattr("relay.backends.cosmos.backend.Containers", partial(Containers, call_timeout_s=LIMIT_S))


@pytest.fixture
async def containers(cosmos: CosmosServer) -> AsyncIterator[Containers]:
    made = containers_at(cosmos.connection_string)
    yield made
    await made.close()


def containers_at(connection_string: str) -> Containers:
    settings = Settings.from_environment({"COSMOS": connection_string, "SERVICEBUS": SERVICEBUS})
    return Containers(settings.in_cosmos, call_timeout_s=LIMIT_S)


@contextlib.contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize(
    ("kind", "connected", "container"),
    [
        ("silent", False, None),
        ("silent-midway", True, None),
        ("silent", True, "data"),
        ("silent-midway", False, "data"),
        ("silent", False, "leases"),
        ("silent-midway", True, "leases"),
    ],
)
async def test_old_events_wait_while_the_leases_cannot_be_read_and_are_sent_afterwards(
    make_relay: RelayMaker, faults: FaultClient, kind: str, connected: bool, container: str | None
) -> None:
    relay = make_relay()
    if connected:
        await relay.handle([OLD | {"id": "before"}], "i0")
    fault = await faults.add(kind, container=container, for_ms=60_000)

    # If nothing answers, the orders are the first that cannot be read.
    raised = pytest.raises(
        (LeaseError, QuarantineError), match=r"'(leases|quarantine)' .* did not answer within 2 s\."
    )
    with soon(), raised:
        await relay.handle([OLD], "i1")

    assert await faults.applied(fault) > 0
    await faults.remove(fault)
    with soon():
        assert (await relay.handle([OLD], "i1", 1)).published == 1


@pytest.mark.parametrize(("kind", "container"), [("silent", None), ("silent-midway", "quarantine")])
async def test_what_must_be_quarantined_comes_again_until_the_container_answers(
    make_relay: RelayMaker, faults: FaultClient, quarantine: ContainerProxy, kind: str, container: str | None
) -> None:
    relay = make_relay()
    fault = await faults.add(kind, container=container, for_ms=60_000)

    # A page with an invalid document may have been attempted before: it is compared with the leases first.
    unread, error = (container, QuarantineError) if container else ("leases", LeaseError)
    with soon(), pytest.raises(error, match=rf"'{unread}' .* did not answer within 2 s\."):
        await relay.handle([INVALID, just_committed(event("sound", "k2"))], "i1")

    assert await faults.applied(fault) > 0
    await faults.remove(fault)
    with soon():
        outcome = await relay.handle([INVALID, event("sound", "k2")], "i1", 1)
    sent_before = 1 if container else 0
    assert (outcome.already_published, outcome.published) == (sent_before, 1 - sent_before)
    assert outcome.quarantined.total() == 1
    assert [item["document"]["id"] for item in await quarantined(quarantine)] == ["invalid"]


@pytest.mark.parametrize("kind", ["silent", "silent-midway"])
async def test_orders_and_parked_keys_are_read_again(
    make_relay: RelayMaker, faults: FaultClient, kind: str
) -> None:
    relay = make_relay(RELAY_ON_POISON="park")
    fault = await faults.add(kind, container="quarantine", for_ms=60_000)

    with soon(), pytest.raises(QuarantineError, match="did not answer within 2 s"):
        await relay.handle([event("e1", "k")], "i1")

    await faults.remove(fault)
    assert (await relay.handle([event("e1", "k")], "i1", 1)).published == 1


async def test_all_that_ask_at_once_are_answered_in_the_time_of_one(
    containers: Containers, faults: FaultClient
) -> None:
    await faults.add("silent", for_ms=60_000)

    with soon():
        ended = await asyncio.gather(*(containers.positions() for _ in range(20)), return_exceptions=True)

    assert {type(error) for error in ended} == {LeaseError}


async def test_a_call_that_is_cut_off_leaves_the_others_their_connections(
    containers: Containers, faults: FaultClient
) -> None:
    async with containers.call() as other:
        await faults.add("silent", container="leases", for_ms=60_000)
        cut_off = asyncio.create_task(containers.positions())
        await asyncio.sleep(LIMIT_S / 2)
        other.answered()
        with pytest.raises(LeaseError):
            await cut_off
        await other.container("quarantine").create_item({"id": "1", "partitionKey": "k"})

    with soon():
        await containers.close()


async def test_a_call_that_its_caller_cuts_off_is_not_followed_by_others_on_its_connection(
    containers: Containers, faults: FaultClient
) -> None:
    items = CosmosItems(containers)
    assert await items.count(Filter()) == 0
    fault = await faults.add("silent-midway", container="quarantine", for_ms=60_000)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LIMIT_S / 4):
            await items.count(Filter())

    await faults.remove(fault)
    async with asyncio.timeout(LIMIT_S):
        assert await items.count(Filter()) == 0


async def test_pages_that_come_one_by_one_may_take_longer_than_a_call(
    containers: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = CosmosItems(containers)
    for number in range(20):
        await items.create({"id": f"{number}", "partitionKey": f"k{number}", "type": "parkedKey"})
    answer = Gateway._answer

    async def slowly(gateway: Gateway, request: Request) -> Reply:
        await asyncio.sleep(LIMIT_S * 0.4)
        return await answer(gateway, request)

    monkeypatch.setattr(Gateway, "_answer", slowly)
    began = time.monotonic()

    assert len(await items.of_type("parkedKey")) == 20
    assert time.monotonic() - began > LIMIT_S


async def test_after_connections_were_lost_in_silence_one_call_fails_and_the_next_one_has_a_new_one(
    cosmos: CosmosServer,
) -> None:
    async with Network(lambda: asyncio.open_connection("127.0.0.1", cosmos.port)) as network:
        containers = containers_at(cosmos.connection_string.replace(f":{cosmos.port}/", f":{network.port}/"))
        await asyncio.gather(*(containers.positions() for _ in range(8)))
        assert network.lose() > 1

        items = CosmosItems(containers)
        with soon(), pytest.raises(StoreError, match="did not answer"):
            await items.create({"id": "1", "partitionKey": "k"})
        with soon():
            await items.create({"id": "2", "partitionKey": "k"})

        await containers.close()


async def test_an_account_that_takes_no_connection_is_an_error_that_says_so() -> None:
    with full_backlog() as port:
        containers = containers_at(f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey=YQ==;")
        with soon(), pytest.raises(StoreError, match="did not answer within 2 s"):
            await CosmosItems(containers).count(Filter())
        with soon():
            await containers.close()


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose queue of connections is full: a further one is not answered."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
