"""Retry policies, the failures after which a host tries again, its client's transport, and its share of leases."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.core.rest import HttpRequest
from azure.cosmos.exceptions import CosmosHttpResponseError
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.emulators.functions.errors import HostError, is_transient
from outbox_relay.emulators.functions.feed import PartitionRange
from outbox_relay.emulators.functions.leases import Lease
from outbox_relay.emulators.functions.listener import leases_to_take
from outbox_relay.emulators.functions.retries import RetryPolicy
from outbox_relay.emulators.functions.transport import TriggerTransport
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


def _exponential(**changed: object) -> dict[str, object]:
    return {
        "strategy": "exponential_backoff",
        "max_retry_count": "-1",
        "minimum_interval": "00:00:01",
        "maximum_interval": "00:01:00",
        **changed,
    }


def test_an_exponential_policy_grows_from_the_minimum_to_the_maximum() -> None:
    policy = RetryPolicy.from_settings(_exponential())
    assert policy is not None
    delays = list(islice(policy.delays(random.Random(7)), 12))
    assert delays[0] == 1.0
    for exponent, delay in enumerate(delays[1:6]):
        assert 1 + 0.8 * 2**exponent <= delay <= 1 + 1.2 * 2**exponent
    assert delays[-3:] == [60.0, 60.0, 60.0]


def test_a_fixed_policy_waits_the_same_each_time() -> None:
    policy = RetryPolicy.from_settings(
        {"strategy": "fixed_delay", "max_retry_count": "3", "delay_interval": "00:00:05"}
    )
    assert policy is not None
    assert list(islice(policy.delays(random.Random(1)), 3)) == [5.0, 5.0, 5.0]
    assert [policy.exhausted(retries) for retries in range(5)] == [False, False, False, True, True]


def test_a_minimum_of_zero_retries_at_once_for_ever() -> None:
    policy = RetryPolicy.from_settings(_exponential(minimum_interval="00:00:00"))
    assert policy is not None
    assert set(islice(policy.delays(random.Random(1)), 2_000)) == {0.0}
    assert not policy.exhausted(10**9)


def test_no_declaration_is_no_policy() -> None:
    assert RetryPolicy.from_settings(None) is None


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (_exponential(max_retry_count="many"), "max_retry_count"),
        (_exponential(max_retry_count="-2"), "max_retry_count"),
        (_exponential(minimum_interval="1.00:00:00"), "minimum_interval"),
        (_exponential(minimum_interval="5"), "minimum_interval"),
        (_exponential(minimum_interval="00:02:00"), "minimum_interval is greater"),
        (_exponential(strategy="linear"), "linear"),
        ({"strategy": "fixed_delay", "max_retry_count": "1"}, "delay_interval"),
    ],
)
def test_what_the_worker_or_the_host_would_refuse_is_refused(declared: dict[str, object], named: str) -> None:
    with pytest.raises(HostError, match=named):
        RetryPolicy.from_settings(declared)


# The failures of Cosmos DB after which a host tries again


answered: Any = CosmosHttpResponseError  # its constructor has no annotations


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        *((answered(status, "later"), True) for status in (408, 410, 429, 449, 500, 503)),
        *((answered(status, "no"), False) for status in (400, 401, 403, 404, 412)),
        (ServiceRequestError("no connection"), True),
        (ServiceResponseError("cut"), True),
        (ClientAuthenticationError("no credential"), False),
    ],
)
def test_what_the_service_may_answer_otherwise_next_time_is_transient(error: AzureError, transient: bool) -> None:
    assert is_transient(error) is transient


# The transport of the trigger's client, on its own: what it repeats, and what it gives back at once


Answer = Callable[[], Awaitable[web.Response]]


class Service:
    """Counts requests, and answers them as `answer` does."""

    def __init__(self) -> None:
        self.requests = 0
        self.answer: Answer = self._nothing

    async def handle(self, _: web.BaseRequest) -> web.Response:
        self.requests += 1
        return await self.answer()

    async def _nothing(self) -> web.Response:
        return web.Response()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def address(service: Service) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/dbs", service.handle)
    async with TestServer(application) as server:
        yield str(server.make_url("/dbs"))


@pytest.fixture
async def transport() -> AsyncIterator[TriggerTransport]:
    async with TriggerTransport(asyncio.Event()) as opened:
        yield opened


async def test_a_request_without_an_answer_is_not_repeated(
    service: Service, address: str, transport: TriggerTransport
) -> None:
    async def hang() -> web.Response:
        await elapse(0.5)
        return web.Response()

    service.answer = hang
    with pytest.raises(AzureError):
        await transport.send(HttpRequest("GET", address), read_timeout=0.05)

    assert service.requests == 1


@pytest.mark.parametrize(("retry_after_ms", "requests"), [(1, 10), (31_000, 1)])
async def test_a_throttled_request_is_repeated_nine_times_and_for_thirty_seconds_at_most(
    service: Service, address: str, transport: TriggerTransport, retry_after_ms: int, requests: int
) -> None:
    async def throttle() -> web.Response:
        return web.Response(status=429, headers={"x-ms-retry-after-ms": str(retry_after_ms)})

    service.answer = throttle
    async with asyncio.timeout(WATCHDOG_S):
        response = await transport.send(HttpRequest("GET", address))

    assert (response.status_code, service.requests) == (429, requests)


# The share of the leases that a host takes


NOW = datetime(2024, 1, 1, tzinfo=UTC)


def _leases(*owners: str | None, age_s: float = 1) -> list[Lease]:
    written = NOW - timedelta(seconds=age_s)
    return [
        Lease(f"p..{number}", PartitionRange(str(number), "", "FF"), owner, None, written, "e", {})
        for number, owner in enumerate(owners)
    ]


def _taken(leases: list[Lease], host: str = "me") -> list[str]:
    return [lease.token for lease in leases_to_take(leases, host=host, now=NOW, expiration_s=60)]


@pytest.mark.parametrize(
    ("leases", "taken"),
    [
        pytest.param(_leases(None, None, None, None), ["0", "1", "2", "3"], id="the only host takes everything"),
        pytest.param(_leases("other", "other", None, None), ["2", "3"], id="its share of what is free"),
        pytest.param(_leases("other", None, None, None), ["1", "2"], id="no more than its share"),
        pytest.param(_leases("other", "other", "other", "other"), ["0"], id="one is stolen at a time"),
        pytest.param(_leases("me", "other", "other", "other"), ["1"], id="stolen up to its share"),
        pytest.param(_leases("me", "me", "other", "other"), [], id="an equal share is enough"),
        pytest.param(_leases("a", "b", "b", "b", "a", "b"), ["1"], id="stolen from the host with the most"),
        pytest.param(_leases("other", "other", "me"), [], id="a remainder stays with the other"),
        pytest.param(_leases("a", "a", "b", "b"), ["2"], id="of equal hosts from the last, if two are needed"),
        pytest.param(_leases("dead", "dead", age_s=61), ["0", "1"], id="expired leases are free"),
        pytest.param(_leases("alive", "alive", age_s=59), ["0"], id="not yet expired"),
        pytest.param([], [], id="no leases"),
        pytest.param(_leases("other"), [], id="one lease of another host"),
    ],
)
def test_a_host_takes_its_share_of_the_leases(leases: list[Lease], taken: list[str]) -> None:
    assert _taken(leases) == taken


@given(st.integers(1, 12), st.integers(1, 5))
def test_hosts_taking_turns_come_to_rest_with_fair_shares(partitions: int, hosts: int) -> None:
    owners: list[str | None] = [None] * partitions
    names = [f"host-{number}" for number in range(hosts)]
    for _ in range(partitions * hosts + 2):
        for name in names:
            for token in _taken(_leases(*owners), host=name):
                owners[int(token)] = name
    counts = [owners.count(name) for name in names]
    assert sum(counts) == partitions
    assert max(counts) - min(counts) <= 1 or max(counts) <= -(-partitions // hosts)
    assert not any(_taken(_leases(*owners), host=name) for name in names)
