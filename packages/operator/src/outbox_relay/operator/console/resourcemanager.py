"""The status of a topic or queue, and its messages, as Azure Resource Manager reports them.

Service Bus's own management endpoint asks for the right to manage, with which a topic can be deleted. Resource
Manager asks for the right to read, which the role Azure Service Bus Data Receiver includes:
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration#azure-service-bus-data-receiver
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from outbox_relay.operator.console.model import Subscription
from relay.config.secrecy import quoted
from relay.config.settings import SERVICEBUS, Settings
from relay.core.errors import ServiceError, SettingsError, first_line

if TYPE_CHECKING:
    import aiohttp
    from azure.core.credentials_async import AsyncTokenCredential

VARIABLE = "CONSOLE_TOPIC_URL"

_NAMESPACE = (
    r"https://[^/?#@]+/subscriptions/[^/?#]+/resourceGroups/[^/?#]+/providers/Microsoft\.ServiceBus/"
    r"namespaces/[^/?#]+"
)
_TOPIC = re.compile(rf"(?P<namespace>{_NAMESPACE})/topics/[^/?#]+", re.IGNORECASE)
_GROUP = re.compile(r"/resourceGroups/(?P<group>[^/]+)/", re.IGNORECASE)
_OTHER = re.compile(_NAMESPACE, re.IGNORECASE)
# https://learn.microsoft.com/rest/api/servicebus/controlplane-stable/subscriptions/list-by-topic
# https://learn.microsoft.com/rest/api/servicebus/controlplane-stable/queues/get
_VERSION = "2024-01-01"
_WITHIN_S = 15.0


def topic_address(value: str) -> str:
    """Return the address that CONSOLE_TOPIC_URL has.

    Raises:
        SettingsError: It is not that of a topic in Azure Resource Manager.
    """
    if not _TOPIC.fullmatch(value):
        raise SettingsError(
            [
                f"{VARIABLE} is {quoted(value)}: set https://management.azure.com followed by the resource id of "
                "the topic"
            ]
        )
    return value


def variable_of(setting: str) -> str:
    """Return the variable about the namespace that a setting names: for `ORDERS_BUS`, `CONSOLE_ORDERS_BUS_URL`."""
    return VARIABLE if setting == SERVICEBUS else f"CONSOLE_{setting}_URL"


def address_of(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """Return the address of a stream's topic or queue in Resource Manager, or None if no variable says it.

    CONSOLE_TOPIC_URL is that of one topic, and says where its namespace has the others that relay.toml names. The
    variable of another namespace is the address of the namespace.

    Raises:
        SettingsError: The variable has no such address.
    """
    variable = variable_of(settings.servicebus.setting)
    value = environment.get(variable, "").strip()
    if not value:
        return None
    if variable == VARIABLE:
        topic = topic_address(value)
        if settings.label is None:
            return topic
        found = _TOPIC.fullmatch(topic)
        namespace = found["namespace"] if found else topic
    elif _OTHER.fullmatch(value):
        namespace = value
    else:
        raise SettingsError(
            [
                f"{variable} is {quoted(value)}: set https://management.azure.com followed by the resource id of "
                "the namespace"
            ]
        )
    # There, each / in the name of an entity is a ~.
    entity = quote(settings.servicebus.entity.replace("/", "~"), safe="")
    return f"{namespace}/{settings.servicebus.kind}s/{entity}"


class ResourceManager:
    """Reads one topic and its subscriptions, or one queue."""

    def __init__(self, topic: str, credential: AsyncTokenCredential, variable: str = VARIABLE) -> None:
        """Create a reader, which is not connected yet.

        `topic` is the address in Resource Manager, which the variable says.
        """
        self._topic = topic
        self._variable = variable
        self._credential = credential
        parts = urlsplit(topic)
        self._origin = f"{parts.scheme}://{parts.netloc}/"
        self._session: aiohttp.ClientSession | None = None

    @property
    def group(self) -> str | None:
        """The resource group of the namespace; None if the address does not say it."""
        found = _GROUP.search(self._topic)
        return None if found is None else unquote(found["group"])

    async def subscriptions(self) -> list[Subscription]:
        """Return each subscription with its messages and dead letters, or the queue with its own.

        One request for each page of subscriptions, or for the queue.

        Raises:
            ServiceError: They could not be read; with the remedy.
        """
        async with self._explaining(f"the subscriptions of {self._variable} cannot be counted"):
            parent, _, name = self._topic.rpartition("/")
            if parent.endswith("/queues"):
                queue = await self._get(f"{self._topic}?api-version={_VERSION}")
                return [_read(queue, unquote(name).replace("~", "/"))]
            return [_read(each, each["name"]) for each in await self._listed()]

    async def status(self) -> str:
        """Request the topic's status, such as `Active`. Makes one request.

        Raises:
            ServiceError: It could not be read; with the remedy.
        """
        async with self._explaining(f"the status of {self._variable} cannot be read"):
            topic = await self._get(f"{self._topic}?api-version={_VERSION}")
            return str(topic["properties"]["status"])

    async def _listed(self) -> list[Any]:
        address: str | None = f"{self._topic}/subscriptions?api-version={_VERSION}"
        found: list[Any] = []
        while address:
            # The token is for this service alone.
            if not address.startswith(self._origin):
                raise ValueError(f"the next page is elsewhere, at {address}.")
            page = await self._get(address)
            found += page["value"]
            address = page.get("nextLink")
        return found

    async def _get(self, address: str) -> Any:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(raise_for_status=True)
        token = await self._credential.get_token(f"{self._origin}.default")
        headers = {"Authorization": f"Bearer {token.token}"}
        async with self._session.get(address, headers=headers, allow_redirects=False) as response:
            return await response.json()

    @asynccontextmanager
    async def _explaining(self, what: str) -> AsyncIterator[None]:
        import aiohttp
        from azure.core.exceptions import AzureError

        try:
            async with asyncio.timeout(_WITHIN_S):
                yield
        except (aiohttp.ClientError, AzureError, OSError, ValueError, LookupError, TypeError) as error:
            raise ServiceError(
                f"{what}: {first_line(error) or type(error).__name__} "
                f"Check {self._variable}, and that this identity has the role Azure Service Bus Data Receiver "
                "on the topic."
            ) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._credential.close()


def resource_manager(settings: Settings, environment: Mapping[str, str]) -> ResourceManager | None:
    """Return a reader of the stream's topic or queue, as its identity, or None if no variable has the address.

    Raises:
        SettingsError: There is no identity, or the address is wrong.
    """
    address, setting = address_of(settings, environment), settings.servicebus.setting
    if address is None:
        return None
    identity = settings.servicebus.connection.identity
    if identity is None:
        raise SettingsError(
            [f"{variable_of(setting)} needs {setting}__fullyQualifiedNamespace: Azure asks for an identity"]
        )
    return ResourceManager(address, identity.credential(), variable_of(setting))


def _read(listed: Any, name: str) -> Subscription:
    counts = listed["properties"]["countDetails"]
    return Subscription(name, counts["activeMessageCount"], counts["deadLetterMessageCount"])
