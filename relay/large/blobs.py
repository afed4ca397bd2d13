"""Contents in a container of Azure Blob Storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from relay.config.clients import READ_TIMEOUT_S, blob_container_client
from relay.config.settings import ClaimCheck
from relay.core.deadline import SLOWEST_BYTES_S
from relay.core.errors import ContentError, first_line
from relay.large.content import Content
from relay.servicebus.messages import CONTENT_TYPE

if TYPE_CHECKING:
    from azure.storage.blob.aio import ContainerClient

_ROLE = (
    "Give the app's identity the role 'Storage Blob Data Contributor' on the container, or use the account's key; "
    "and let the account's firewall take the app's requests."
)


class Blobs:
    """Stores each content as a blob; a `claims.ContentStore`. Nothing is connected until the first one.

    A content is written whole or not at all. One that is there is written again: a lifecycle rule then counts from
    the last try, not from the first. Nothing is ever deleted.
    https://learn.microsoft.com/rest/api/storageservices/put-blob
    """

    def __init__(self, settings: ClaimCheck) -> None:
        self._settings = settings
        self._client: ContainerClient | None = None

    async def put(self, content: Content) -> str:
        from azure.storage.blob import ContentSettings

        if self._client is None:
            self._client = blob_container_client(self._settings.connection, self._settings.container)
        blob = self._client.get_blob_client(content.name)
        try:
            await blob.upload_blob(
                content.body,
                overwrite=True,
                content_settings=ContentSettings(content_type=CONTENT_TYPE),
                # It begins when the last bytes are given to the operating system, which may hold many of them.
                read_timeout=READ_TIMEOUT_S + len(content.body) // SLOWEST_BYTES_S,
            )
        except (AzureError, OSError) as error:
            raise ContentError(" ".join(explained(error, self._settings.container))) from error
        return str(blob.url)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def explained(error: Exception, container: str) -> tuple[str, str]:
    """Return the message of a failed request to Blob Storage, and its remedy."""
    said = first_line(error)
    code = getattr(error, "error_code", None)
    if code:
        said = f"{said} ({getattr(code, 'value', code)})"
    return said, _remedy(error, container)


def _remedy(error: Exception, container: str) -> str:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status == 404:
        return f"Create the container {container!r}, or correct RELAY_BLOB_CONTAINER or BLOBS."
    if status in (401, 403):
        return _ROLE
    if status == 409:
        return (
            "Remove the container's immutability policy or legal hold, if it has one. A container that is "
            "being deleted has to be created again."
        )
    if isinstance(error, ClientAuthenticationError):
        return "Could not acquire a token: check BLOBS__credential, BLOBS__clientId and the app's identity."
    if status is None:
        return "Check BLOBS, and the network between here and the account."
    return "It is tried again."
