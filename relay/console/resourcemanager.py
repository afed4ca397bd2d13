"""The status of the topic, and the messages of each subscription, as Azure Resource Manager reports them.

Service Bus's own management endpoint asks for the right to manage, with which a topic can be deleted. Resource
Manager asks for the right to read, which the role Azure Service Bus Data Receiver includes:
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/integration#azure-service-bus-data-receiver
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relay.clients import Identity
from relay.console.model import Subscription
from relay.errors import ServiceError, SettingsError, first_line

if TYPE_CHECKING:
    import aiohttp
    from azure.core.credentials_async import AsyncTokenCredential

VARIABLE = "CONSOLE_TOPIC_URL"

_TOPIC = re.compile(
    r"https://[^/?#@]+/subscriptions/[^/?#]+/resourceGroups/[^/?#]+/providers/Microsoft\.ServiceBus/"
    r"namespaces/[^/?#]+/topics/[^/?#]+",
    re.IGNORECASE,
)
# https://learn.microsoft.com/rest/api/servicebus/controlplane-stable/subscriptions/list-by-topic
_VERSION = "2024-01-01"
_WITHIN_S = 15.0


def topic_address(value: str) -> str:
    """The address that CONSOLE_TOPIC_URL has.

    Raises:
        SettingsError: It is not that of a topic in Azure Resource Manager.
    """
    if not _TOPIC.fullmatch(value):
        raise SettingsError(
            [f"{VARIABLE} is {value!r}: set https://management.azure.com followed by the resource id of the topic"]
        )
    return value


class ResourceManager:
    """Reads one topic and its subscriptions."""

    def __init__(self, topic: str, credential: AsyncTokenCredential) -> None:
        """`topic` is the topic's address in Resource Manager. Nothing is connected yet."""
        self._topic = topic
        self._credential = credential
        parts = urlsplit(topic)
        self._origin = f"{parts.scheme}://{parts.netloc}/"
        self._session: aiohttp.ClientSession | None = None

    async def subscriptions(self) -> list[Subscription]:
        """Each subscription with its messages and dead letters. One request for each page of subscriptions.

        Raises:
            ServiceError: They could not be read; with the remedy.
        """
        async with self._explaining(f"the subscriptions of {VARIABLE} cannot be counted"):
            return [_read(each) for each in await self._listed()]

    async def status(self) -> str:
        """The topic's status, such as `Active`. One request.

        Raises:
            ServiceError: It could not be read; with the remedy.
        """
        async with self._explaining(f"the status of {VARIABLE} cannot be read"):
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
                f"Check {VARIABLE}, and that this identity has the role Azure Service Bus Data Receiver on the "
                "topic."
            ) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._credential.close()


def resource_manager(address: str, identity: Identity | None) -> ResourceManager:
    """A reader of the topic at this address, as this identity.

    Raises:
        SettingsError: There is no identity, or the address is not that of a topic.
    """
    if identity is None:
        raise SettingsError([f"{VARIABLE} needs SERVICEBUS__fullyQualifiedNamespace: Azure asks for an identity"])
    return ResourceManager(topic_address(address), identity.credential())


def _read(listed: Any) -> Subscription:
    counts = listed["properties"]["countDetails"]
    return Subscription(listed["name"], counts["activeMessageCount"], counts["deadLetterMessageCount"])
