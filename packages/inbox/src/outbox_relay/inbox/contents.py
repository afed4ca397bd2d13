"""The bodies of large events, which their messages only name.

A relay that is set so stores the body of an event that is too large for a message in Azure Blob Storage, and sends
a message with an empty body and these properties: `dataRef`, the blob's address; `dataSha256`; `dataLength`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from outbox_relay.inbox.errors import DeadLetter, NotFetched
from outbox_relay.inbox.messages import Handler, Message

ADDRESS, SHA256, LENGTH = "dataRef", "dataSha256", "dataLength"

_SLOWEST_BYTES_S = 250_000
"""Bytes a second that a line carries at least. At this rate, a body of 100 MB takes less than seven minutes."""

_LONGEST_NAME = 1024
"""Maximum characters of a blob's name:
https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
"""
_PORTS = {"https": 443, "http": 80}
# Codes of answers that will be the same for ever: https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes
_NO_NAME = {"InvalidUri", "InvalidResourceName", "OutOfRangeInput"}
_DENIED = (401, 403)

_log = logging.getLogger(__name__)


class Contents(Protocol):
    """Where a receiver gets the bodies of large events."""

    def fetch(self, address: str, length: int, /) -> Awaitable[bytes]:
        """Return the content at an address.

        Args:
            address: It comes from a message: do not pass a secret on to just any host.
            length: The number of bytes that the message says. Read no more than one byte beyond it.

        Raises:
            DeadLetter: It will never be there.
            Exception: It cannot be had now. The message is delivered again, before its successors, for as long as
                that lasts: no delivery is counted.
        """


class BlobContents:
    """Gets bodies from a container of Blob Storage, and from no other place.

    Args:
        container: An `azure.storage.blob.aio.ContainerClient` of the relay's container, open. Its identity needs
            the role *Storage Blob Data Reader*.
        timeout_s: Time that a body may take, in seconds, besides the time that its bytes take at 250 000 a second.
    """

    def __init__(self, container: Any, *, timeout_s: float = 60.0) -> None:
        self._container = container
        self._timeout_s = timeout_s

    async def fetch(self, address: str, length: int, /) -> bytes:
        """Return the blob at an address, if it has that length.

        Raises:
            DeadLetter: The address is in no container of this name and account (`content-elsewhere`), there is no
                such blob (`content-missing`), or it is longer (`content-differs`).
            TimeoutError, azure.core.exceptions.AzureError: It cannot be read now.
        """
        name = self._name_of(address)
        try:
            async with asyncio.timeout(self._timeout_s + length // _SLOWEST_BYTES_S):
                # One byte more shows that the blob is longer; the rest of it is not asked for.
                download = await self._container.download_blob(name, offset=0, length=length + 1)
                if download.size > length:
                    raise DeadLetter("content-differs", f"The content has more than the {length} bytes it should.")
                body: bytes = await download.readall()
                return body
        except ResourceNotFoundError as error:
            if getattr(error, "error_code", None) != "BlobNotFound":
                raise
            raise DeadLetter(
                "content-missing", "The blob that the message names is not there: it may have expired."
            ) from error
        except HttpResponseError as error:
            if getattr(error, "error_code", None) in _NO_NAME:
                raise self._elsewhere() from error
            raise

    def _name_of(self, address: str) -> str:
        try:
            name = _name_in(urlsplit(self._container.url), address)
        except ValueError as error:
            # Of urlsplit, or of a text that is no UTF-8.
            raise self._elsewhere() from error
        if name is None:
            raise self._elsewhere()
        return name

    def _elsewhere(self) -> DeadLetter:
        ours = urlsplit(self._container.url)
        where = f"{ours.netloc}{ours.path}"
        return DeadLetter("content-elsewhere", f"The message names a blob that is not in the container {where}.")


def _name_in(container: SplitResult, address: str) -> str | None:
    """Return the name of the blob with an address, or None if it is in another container, or can be in none.

    Raises:
        ValueError: The address is no URL, or its name is not UTF-8.
    """
    if not address.isprintable():
        # `urlsplit` would leave out some of these characters.
        return None
    found = urlsplit(address)
    folder = f"{container.path.rstrip('/')}/"
    if _origin(found) != _origin(container) or found.username is not None or not found.path.startswith(folder):
        return None
    name = unquote(found.path.removeprefix(folder), errors="strict")
    if len(name) > _LONGEST_NAME or not name.isprintable() or "\\" in name:
        return None
    return name if {"", ".", ".."}.isdisjoint(name.split("/")) else None


def _origin(address: SplitResult) -> tuple[str, str | None, int | None]:
    """Return the scheme, host and port of an address.

    See https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2.1 and 6.2.3.

    Raises:
        ValueError: The port is no number of a port.
    """
    scheme = address.scheme
    return scheme, address.hostname, _PORTS.get(scheme) if address.port is None else address.port


async def whole(message: Message, contents: Contents | None) -> Message:
    """Return the message with its body, which is fetched and compared if the message only names it.

    Raises:
        DeadLetter: The receiver has no `contents` (`content-not-fetched`), or the content is not what the message
            names (`content-differs`), or as `Contents.fetch`.
        NotFetched: The content cannot be had now.
    """
    address = message.properties.get(ADDRESS)
    if address is None or message.body:
        return message
    if contents is None:
        raise DeadLetter(
            "content-not-fetched",
            "The body of this large event is in Blob Storage, and the receiver was given no `contents`.",
        )
    if not isinstance(address, str):
        raise DeadLetter("content-elsewhere", f"The property {ADDRESS} is no text, but {type(address).__name__}.")
    digest, length = message.properties.get(SHA256), message.properties.get(LENGTH)
    if not isinstance(digest, str) or type(length) is not int or length < 0:
        raise DeadLetter(
            "content-differs", f"The message has no text {SHA256} and no number {LENGTH} to compare with."
        )
    try:
        body = await contents.fetch(address, length)
    except DeadLetter:
        raise
    except Exception as error:
        _log_failure(message, error)
        raise NotFetched from error
    found = hashlib.sha256(body).hexdigest(), len(body)
    if (digest, length) != found:
        raise DeadLetter(
            "content-differs",
            f"The content has SHA-256 {found[0]} and {found[1]} bytes; the message says {(digest, length)}.",
        )
    return replace(message, body=body)


def _log_failure(message: Message, error: Exception) -> None:
    """Log that a key waits for a content; not the error's text, which may contain a signature."""
    status, code = getattr(error, "status_code", None), getattr(error, "error_code", None)
    known = (type(error).__name__, status, getattr(code, "value", code))
    what = ": ".join(str(each) for each in known if each is not None)
    text = "The content of message %r cannot be had now (%s), and the key %r waits for it. %s"
    if status in _DENIED:
        remedy = "Give the receiver's identity the role Storage Blob Data Reader on the container of `contents`."
        _log.error(text, message.id, what, message.key, remedy)
    elif isinstance(error, ResourceNotFoundError):
        _log.error(text, message.id, what, message.key, "Is the container of `contents` the one of the relay?")
    else:
        _log.warning(text, message.id, what, message.key, "It is tried again.")


def on_whole(handler: Handler, contents: Contents | None) -> Handler:
    """Return a handler that gets the bodies of large events too, and raises an error if a body cannot be had."""

    async def handle(message: Message) -> None:
        result = handler(await whole(message, contents))
        if inspect.isawaitable(result):
            await result

    return handle
