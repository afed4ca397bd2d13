"""The console's counts from Azure Resource Manager: real requests to a server that answers as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from outbox_relay.operator.console.model import Subscription
from outbox_relay.operator.console.resourcemanager import (
    ResourceManager,
    address_of,
    resource_manager,
    topic_address,
)
from outbox_relay.operator.console.servicebus import ServiceBusTopic
from relay.config.clients import Identity
from relay.config.settings import Settings
from relay.core.errors import ServiceError, SettingsError

NAMESPACE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/n"
PATH = f"{NAMESPACE}/topics/domain-events"
ORDERS_BUS = "Endpoint=sb://orders.test/;SharedAccessKeyName=k;SharedAccessKey=YQ=="
Answer = Callable[[web.Request], web.Response]


class Credential:
    """Gives one token, and remembers for what it was asked."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.scopes: list[str] = []
        self.closed = False
        self._problem = problem

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        if self._problem is not None:
            raise self._problem
        return AccessToken("token", 2_000_000_000)

    async def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Credential:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """The address of a server that answers everything so."""

    async def handle(request: web.Request) -> web.Response:
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def listed(name: str, active: int, dead: int) -> dict[str, Any]:
    counts = {"activeMessageCount": active, "deadLetterMessageCount": dead, "transferMessageCount": 0}
    return {"id": f"{PATH}/subscriptions/{name}", "name": name, "properties": {"countDetails": counts}}


async def test_every_page_of_subscriptions_is_read_with_a_token_for_resource_manager() -> None:
    asked: list[tuple[str, str, str | None]] = []

    def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.query_string, request.headers.get("Authorization")))
        if "skip" in request.query:
            return web.json_response({"value": [listed("names", 0, 3)]})
        following = f"{request.url.origin()}{PATH}/subscriptions?api-version=2024-01-01&skip=1"
        return web.json_response({"value": [listed("all", 7, 0)], "nextLink": following})

    credential = Credential()
    async with serving(answer) as address:
        topic = ResourceManager(f"{address}{PATH}", credential)
        found = await topic.subscriptions()
        await topic.close()

    assert [(each.name, each.active, each.dead_lettered) for each in found] == [("all", 7, 0), ("names", 0, 3)]
    assert {(path, token) for path, _, token in asked} == {(f"{PATH}/subscriptions", "Bearer token")}
    assert asked[0][1] == "api-version=2024-01-01"
    assert set(credential.scopes) == {f"{address}/.default"}
    assert credential.closed


async def test_the_status_of_the_topic_is_read() -> None:
    asked = []

    def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.query_string))
        return web.json_response({"properties": {"status": "Disabled"}})

    async with serving(answer) as address:
        topic = ResourceManager(f"{address}{PATH}", Credential())
        status = await topic.status()
        await topic.close()

    assert status == "Disabled"
    assert asked == [(PATH, "api-version=2024-01-01")]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _: web.Response(status=403), "403"),
        (lambda _: web.Response(text="<html>", content_type="text/html"), "text/html"),
        (lambda _: web.json_response({"value": [{"name": "all", "properties": {}}]}), "countDetails"),
        (lambda _: web.json_response([]), "TypeError|list indices"),
        (lambda _: web.Response(status=302, headers={"Location": "https://elsewhere.test/"}), "302"),
    ],
    ids=["refused", "no JSON", "no counts", "no page", "a redirect"],
)
async def test_an_answer_that_cannot_be_used_names_the_setting_and_the_role(answer: Answer, says: str) -> None:
    async with serving(answer) as address:
        topic = ResourceManager(f"{address}{PATH}", Credential())
        try:
            with pytest.raises(ServiceError, match=rf"CONSOLE_TOPIC_URL.*(?:{says}).*Data Receiver on the topic"):
                await topic.subscriptions()
        finally:
            await topic.close()


async def test_the_token_is_sent_to_no_other_server() -> None:
    asked: list[web.Request] = []

    def elsewhere(request: web.Request) -> web.Response:
        asked.append(request)
        return web.json_response({"value": []})

    async with serving(elsewhere) as other:
        following = {"value": [], "nextLink": f"{other}{PATH}/subscriptions"}
        async with serving(lambda _: web.json_response(following)) as address:
            topic = ResourceManager(f"{address}{PATH}", Credential())
            try:
                with pytest.raises(ServiceError, match=f"the next page is elsewhere, at {other}"):
                    await topic.subscriptions()
            finally:
                await topic.close()

    assert asked == []


async def test_no_token_is_such_an_error_too() -> None:
    topic = ResourceManager(f"http://127.0.0.1:1{PATH}", Credential(ClientAuthenticationError("no identity")))
    try:
        with pytest.raises(ServiceError, match="no identity"):
            await topic.subscriptions()
    finally:
        await topic.close()


async def test_the_console_counts_there_if_the_address_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Identity, "credential", lambda _: Credential())
    monkeypatch.setattr("outbox_relay.operator.console.resourcemanager.topic_address", lambda address: address)
    settings = Settings.from_environment(BY_IDENTITY)
    async with serving(lambda _: web.json_response({"value": [listed("b", 1, 0), listed("a", 2, 0)]})) as address:
        topic = ServiceBusTopic(settings, {"CONSOLE_TOPIC_URL": f"{address}{PATH}"})
        try:
            found = await topic.subscriptions()
        finally:
            await topic.close()

    assert [(each.name, each.active) for each in found] == [("a", 2), ("b", 1)]


async def test_a_topic_that_is_disabled_has_its_resource_group_in_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Identity, "credential", lambda _: Credential())
    monkeypatch.setattr("outbox_relay.operator.console.resourcemanager.topic_address", lambda address: address)
    settings = Settings.from_environment(BY_IDENTITY)
    async with serving(lambda _: web.json_response({"properties": {"status": "Disabled"}})) as address:
        topic = ServiceBusTopic(settings, {"CONSOLE_TOPIC_URL": f"{address}{PATH}"})
        try:
            [found] = await topic.obstacles()
        finally:
            await topic.close()

    assert found.remedy == (
        "Set its status to Active: az servicebus topic update --status Active --resource-group=g "
        f"--namespace-name=n --name={settings.servicebus.entity}"
    )


@pytest.mark.parametrize(
    "value",
    [
        f"http://management.azure.com{PATH}",
        PATH,
        "https://management.azure.com/subscriptions/s",
        f"https://management.azure.com{PATH}/subscriptions/all",
        f"https://management.azure.com{PATH}?api-version=1",
        f"https://user@management.azure.com{PATH}",
    ],
)
def test_an_address_that_is_no_topics_is_a_wrong_setting(value: str) -> None:
    with pytest.raises(SettingsError, match=r"CONSOLE_TOPIC_URL is .*resource id of the topic"):
        topic_address(value)


BY_IDENTITY = {
    "COSMOS__accountEndpoint": "https://a.documents.azure.com:443/",
    "SERVICEBUS__fullyQualifiedNamespace": "n.servicebus.windows.net",
}


def test_the_address_needs_an_identity() -> None:
    key = {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": ORDERS_BUS}
    settings = Settings.from_environment(key)
    assert resource_manager(settings, {}) is None
    with pytest.raises(SettingsError, match="CONSOLE_TOPIC_URL needs SERVICEBUS__fullyQualifiedNamespace"):
        resource_manager(settings, {"CONSOLE_TOPIC_URL": f"https://management.azure.com{PATH}"})
    other = replace(settings, servicebus=replace(settings.servicebus, setting="ORDERS_BUS"))
    with pytest.raises(SettingsError, match="CONSOLE_ORDERS_BUS_URL needs ORDERS_BUS__fullyQualifiedNamespace"):
        resource_manager(other, {"CONSOLE_ORDERS_BUS_URL": f"https://management.azure.com{NAMESPACE}"})


def test_each_stream_has_an_address_in_its_own_namespace() -> None:
    """The variable of SERVICEBUS is the address of one topic, with or without relay.toml."""
    default = Settings.from_environment(BY_IDENTITY)
    topic = replace(default.servicebus, entity="contacts")
    queue = replace(topic, setting="ORDERS_BUS", entity="in/new", is_queue=True)
    contacts = replace(default, stream="contacts", several=True, servicebus=topic)
    orders = replace(contacts, servicebus=queue)
    main = {"CONSOLE_TOPIC_URL": f"https://management.azure.com{PATH}"}
    other = NAMESPACE.replace("/resourceGroups/g/", "/resourceGroups/orders/")
    both = main | {"CONSOLE_ORDERS_BUS_URL": f"https://management.azure.com{other}"}

    assert address_of(default, both) == main["CONSOLE_TOPIC_URL"]
    assert address_of(contacts, both) == f"https://management.azure.com{NAMESPACE}/topics/contacts"
    assert address_of(orders, both) == f"{both['CONSOLE_ORDERS_BUS_URL']}/queues/in~new"
    assert address_of(orders, main) is None
    with pytest.raises(SettingsError, match=r"CONSOLE_ORDERS_BUS_URL is .*resource id of the namespace"):
        address_of(orders, {"CONSOLE_ORDERS_BUS_URL": main["CONSOLE_TOPIC_URL"]})


async def test_a_queue_has_its_messages_itself() -> None:
    queue = f"{NAMESPACE}/queues/orders-in"
    asked: list[str] = []

    def answer(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        found = listed("orders-in", 5, 2)
        return web.json_response({**found, "properties": {**found["properties"], "status": "Active"}})

    async with serving(answer) as address:
        reader = ResourceManager(f"{address}{queue}", Credential(), "CONSOLE_ORDERS_BUS_URL")
        assert await reader.subscriptions() == [Subscription("orders-in", 5, 2)]
        assert await reader.status() == "Active"
        await reader.close()

    assert asked == [f"{queue}?api-version=2024-01-01"] * 2
