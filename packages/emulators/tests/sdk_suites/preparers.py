"""Stand-ins for the preparers of azure-servicebus' tests, which make entities by Azure's resource manager."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
import types
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from packages.emulators.tests.sdk_suites.devtools import accepted, credential

_POLICY = "RootManageSharedAccessKey"
_LOCKS = {"lock_duration": "PT30S"}
"""Duration of a queue's locks unless a test says otherwise; several tests wait until they have expired."""


def namespace() -> str:
    return f"127.0.0.1{os.environ['SERVICEBUS_ENDPOINT_SUFFIX']}"


def connection_string(policy: str, key: str) -> str:
    return (
        f"Endpoint=sb://{namespace()}/;SharedAccessKeyName={policy};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true"
    )


def _redirect(request: Any) -> None:
    """Send a request to the namespace by plain HTTP, to the port of its administration."""
    admin = f"127.0.0.1:{os.environ['SUITE_ADMIN_PORT']}"
    request.url = request.url.replace("https://", "http://", 1).replace(namespace(), admin, 1)
    request.headers["Host"] = namespace()


class _Transport(RequestsTransport):  # type: ignore[misc]  # azure-core exports it untyped
    def send(self, request: Any, **config: Any) -> Any:
        _redirect(request)
        return super().send(request, **config)


class _AsyncTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core exports it untyped
    async def send(self, request: Any, **config: Any) -> Any:
        _redirect(request)
        return await super().send(request, **config)


def _administration() -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient(namespace(), credential())


class _Preparer:
    """Makes something before a test, and gives it to the test's arguments."""

    parameter = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.options = {
            name: value
            for name, value in options.items()
            if name not in ("name_prefix", "use_cache", "parameter_name", "random_name_enabled", "location", "sku")
        }
        self.parameter = options.get("parameter_name", self.parameter)

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the test gets; `given` are those of the preparers before."""
        return {}

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            async def prepared_async(test: Any, **given: Any) -> Any:
                made = await asyncio.to_thread(self.made, given)
                return await function(test, **accepted(function, {**given, **made}))

            return self._named(prepared_async, function)

        def prepared(test: Any, **given: Any) -> Any:
            return function(test, **accepted(function, {**given, **self.made(given)}))

        return self._named(prepared, function)

    def _named(self, prepared: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        functools.update_wrapper(prepared, function)
        del prepared.__wrapped__  # type: ignore[attr-defined]
        # pytest finds its fixtures here: those that the innermost function asks for.
        prepared.__signature__ = _signature(function)  # type: ignore[attr-defined]
        prepared.prepared = True  # type: ignore[attr-defined]
        return prepared


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters that pytest fills: not those of preparers, which have a default or are collected."""
    signature = inspect.signature(function)
    return signature.replace(
        parameters=[
            each
            for each in signature.parameters.values()
            if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        ]
    )


class NamespacePreparer(_Preparer):
    parameter = "servicebus_namespace"

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "servicebus_namespace": SimpleNamespace(name="127.0.0.1"),
            "servicebus_namespace_connection_string": connection_string(_POLICY, os.environ["SUITE_KEY"]),
            "servicebus_namespace_key_name": _POLICY,
            "servicebus_namespace_primary_key": os.environ["SUITE_KEY"],
        }


class QueuePreparer(_Preparer):
    parameter = "servicebus_queue"

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        with _administration() as administration:
            queue = administration.create_queue(f"queue-{uuid.uuid4().hex[:12]}", **_LOCKS | self.options)
        return {self.parameter: SimpleNamespace(name=queue.name)}


class TopicPreparer(_Preparer):
    parameter = "servicebus_topic"

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        with _administration() as administration:
            topic = administration.create_topic(f"topic-{uuid.uuid4().hex[:12]}")
        return {self.parameter: SimpleNamespace(name=topic.name)}


class SubscriptionPreparer(_Preparer):
    parameter = "servicebus_subscription"

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        name = f"subscription-{uuid.uuid4().hex[:12]}"
        with _administration() as administration:
            administration.create_subscription(given["servicebus_topic"].name, name, **self.options)
        return {self.parameter: SimpleNamespace(name=name)}


class QueueAuthorizationRulePreparer(_Preparer):
    parameter = "servicebus_queue_authorization_rule"

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        rights = self.options.get("access_rights", [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN])
        key = "c3VpdGVzdWl0ZXN1aXRlc3VpdGVzdWl0ZXN1aXRlc3VpdGU="
        rule = AuthorizationRule(
            key_name="suite",
            rights=rights,
            primary_key=key,
            secondary_key=key,
            type="SharedAccessAuthorizationRule",
        )
        with _administration() as administration:
            queue = administration.get_queue(given["servicebus_queue"].name)
            queue.authorization_rules = [rule]
            administration.update_queue(queue)
        return {f"{self.parameter}_connection_string": connection_string("suite", key)}


class NamespaceAuthorizationRulePreparer(_Preparer):
    """Only a namespace's file has its rules, not its API."""

    def made(self, given: dict[str, Any]) -> dict[str, Any]:
        pytest.skip("the emulator takes authorization rules of a namespace from its file")


def install() -> None:
    """Let the suite import the preparers, and its clients use plain connections to the emulator."""
    module = types.ModuleType("servicebus_preparer")
    for name, preparer in {
        "ResourceGroup": _Preparer,
        "Namespace": NamespacePreparer,
        "Queue": QueuePreparer,
        "Topic": TopicPreparer,
        "Subscription": SubscriptionPreparer,
        "QueueAuthorizationRule": QueueAuthorizationRulePreparer,
        "NamespaceAuthorizationRule": NamespaceAuthorizationRulePreparer,
    }.items():
        setattr(module, f"ServiceBus{name}Preparer", preparer)
        setattr(module, f"CachedServiceBus{name}Preparer", preparer)
    vars(module).update(
        SERVICEBUS_ENDPOINT_SUFFIX=os.environ["SERVICEBUS_ENDPOINT_SUFFIX"],
        SERVICEBUS_DEFAULT_AUTH_RULE_NAME=_POLICY,
    )
    sys.modules["servicebus_preparer"] = module
    models = types.ModuleType("azure.mgmt.servicebus.models")
    models.AccessRights = SimpleNamespace(  # type: ignore[attr-defined]
        manage=AccessRights.MANAGE, send=AccessRights.SEND, listen=AccessRights.LISTEN
    )
    for name in ("azure.mgmt", "azure.mgmt.servicebus"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["azure.mgmt.servicebus.models"] = models
    common = types.ModuleType("azure.common")
    common.AzureHttpError = common.AzureConflictHttpError = RuntimeError  # type: ignore[attr-defined]
    sys.modules["azure.common"] = common
    for client, transport in (
        (ServiceBusClient, None),
        (AsyncServiceBusClient, None),
        (ServiceBusAdministrationClient, _Transport),
        (AsyncAdministrationClient, _AsyncTransport),
    ):
        _patch(client, transport)


def _patch(client: Any, transport: Any) -> None:
    original = client.__init__

    @functools.wraps(original)
    def patched(self: Any, *arguments: Any, **options: Any) -> None:
        options.setdefault("use_tls", False)
        if options.get("transport_type") is TransportType.AmqpOverWebsocket:
            options.setdefault("custom_endpoint_address", f"sb://127.0.0.1:{os.environ['SUITE_ADMIN_PORT']}")
        if transport is not None:
            options.setdefault("transport", transport())
        original(self, *arguments, **options)

    client.__init__ = patched
