"""Another client of the same account, whose refused requests must not disturb the relay."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from local.chaos.admin import NotInjected

_WITHIN_S = 10.0
_PAUSE_S = 0.2

_TOKEN_AHEAD = ",".join(f"{number}:-1#{10**12}" for number in range(64))
# Deeper than the host's parser accepts: Json.NET 13's MaxDepth is 64.
_TOO_DEEP = 70
_BYSTANDER = "bystander"


class AccountBystander:
    """Another application. Its methods raise NotInjected if another fault prevents theirs."""

    def __init__(self, data: ContainerProxy) -> None:
        self._data = data

    async def read_ahead(self) -> None:
        """Read with the session token of a write that has not happened."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._read_ahead()
        except TimeoutError as error:
            raise NotInjected(f"read-ahead: not answered within {_WITHIN_S:.0f} s") from error

    async def _read_ahead(self) -> None:
        try:
            await self._data.read_item(
                "none", partition_key=_BYSTANDER, headers={"x-ms-session-token": _TOKEN_AHEAD}
            )
        except KeyError:
            return  # azure-cosmos 4.17.1, on a 404/1002, removes a token that it does not have
        except CosmosHttpResponseError as error:
            if error.status_code != 404:
                raise NotInjected(f"a read ahead of the account was answered with {error.status_code}") from error
            return
        raise NotInjected("a read ahead of the account succeeded")

    async def withhold_page(self, until: Callable[[], Awaitable[None]]) -> None:
        """Write a document that the host cannot parse, which blocks its physical partition; then remove it.

        `until` returns when it may be removed. Removal is retried until it succeeds.
        """
        identifier = str(uuid.uuid4())
        deep: object = "deep"
        for _ in range(_TOO_DEEP):
            deep = [deep]
        document = {"id": identifier, "partitionKey": f"deep-{identifier}", "type": "contact", "data": deep}
        try:
            await self._data.create_item(document)
            await until()
        except AzureError as error:
            raise NotInjected(f"the document could not be written: {type(error).__name__}") from error
        finally:
            await self._remove(document)

    async def _remove(self, document: dict[str, object]) -> None:
        while True:
            try:
                await self._data.delete_item(str(document["id"]), partition_key=str(document["partitionKey"]))
            except CosmosHttpResponseError as error:
                if error.status_code == 404:
                    return
            except AzureError:
                pass
            await asyncio.sleep(_PAUSE_S)
