"""The bodies of large events, which their messages only name.

A relay that is set so stores the body of an event that is too large for a message in Azure Blob Storage, and sends
a message with an empty body and these properties: `dataRef`, the blob's address; `dataSha256`; `dataLength`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from azure.core.exceptions import ResourceNotFoundError

from inbox.errors import DeadLetter
from inbox.messages import Message

ADDRESS, SHA256, LENGTH = "dataRef", "dataSha256", "dataLength"


class Contents(Protocol):
    """Where a receiver gets the bodies of large events."""

    def fetch(self, address: str, /) -> Awaitable[bytes]:
        """The content at this address, which comes from a message: do not pass a secret on to just any host.

        Raises:
            DeadLetter: It will never be there.
            Exception: It cannot be had now; the message is delivered again.
        """


class BlobContents:
    """Gets bodies from a container of Blob Storage, and from no other place.

    Args:
        container: An `azure.storage.blob.aio.ContainerClient` of the relay's container, open. Its identity needs
            the role *Storage Blob Data Reader*.
        timeout_s: Time that a body may take, in seconds.
    """

    def __init__(self, container: Any, *, timeout_s: float = 60.0) -> None:
        self._container = container
        self._timeout_s = timeout_s

    async def fetch(self, address: str, /) -> bytes:
        """The blob at this address.

        Raises:
            DeadLetter: The address is in no container of this name and account (`content-elsewhere`), or there is
                no such blob (`content-missing`).
            TimeoutError, azure.core.exceptions.AzureError: It cannot be read now.
        """
        name = self._name_of(address)
        try:
            async with asyncio.timeout(self._timeout_s):
                download = await self._container.download_blob(name)
                body: bytes = await download.readall()
                return body
        except ResourceNotFoundError as error:
            if getattr(error, "error_code", None) != "BlobNotFound":
                raise
            raise DeadLetter(
                "content-missing", "The blob that the message names is not there: it may have expired."
            ) from error

    def _name_of(self, address: str) -> str:
        ours, theirs = urlsplit(self._container.url), urlsplit(address)
        folder = f"{ours.path.rstrip('/')}/"
        name = unquote(theirs.path.removeprefix(folder))
        is_ours = (theirs.scheme, theirs.netloc) == (ours.scheme, ours.netloc) and theirs.path.startswith(folder)
        if not is_ours or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise DeadLetter(
                "content-elsewhere",
                f"The message names a blob that is not in the container {ours.netloc}{ours.path}.",
            )
        return name


async def whole(message: Message, contents: Contents | None) -> Message:
    """The message with its body, which is fetched and compared if the message only names it.

    Raises:
        DeadLetter: The receiver has no `contents` (`content-not-fetched`), or the content is not what the message
            names (`content-differs`), or as `Contents.fetch`.
        Exception: The content cannot be had now.
    """
    address = message.properties.get(ADDRESS)
    if address is None or message.body:
        return message
    if contents is None or not isinstance(address, str):
        raise DeadLetter(
            "content-not-fetched",
            "The body of this large event is in Blob Storage, and the receiver was given no `contents`.",
        )
    body = await contents.fetch(address)
    said = message.properties.get(SHA256), message.properties.get(LENGTH)
    found = hashlib.sha256(body).hexdigest(), len(body)
    if said != found:
        raise DeadLetter(
            "content-differs", f"The content has SHA-256 {found[0]} and {found[1]} bytes; the message says {said}."
        )
    return replace(message, body=body)
