"""The findings of `check` about the container of large events. Nothing is written."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceModifiedError

from relay.backends.findings import Finding
from relay.config.clients import blob_container_client
from relay.config.settings import ClaimCheck
from relay.core.times import format_duration
from relay.large.blobs import explained

# Of the request, retries included.
_TIMEOUT_S = 20.0

# No blob has this entity tag, so a write that asks for it is refused after the rights have been checked.
_NO_ETAG = "0x0"

_UNLIMITED = timedelta(days=3650)


async def check(settings: ClaimCheck, longest: timedelta | None) -> list[Finding]:
    """Check that contents can be stored, and report how long they are needed.

    Args:
        settings: The container.
        longest: For how long a message waits in any subscription, at most; None if unknown.
    """
    subject = f"RELAY_BLOB_CONTAINER {settings.container!r}"
    async with blob_container_client(settings.connection, settings.container) as client:
        host = urlsplit(client.primary_endpoint)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await client.get_blob_client("check").upload_blob(
                    b"", overwrite=True, etag=_NO_ETAG, match_condition=MatchConditions.IfNotModified
                )
        except ResourceModifiedError:
            written = Finding.ok(f"{subject} can be written to")
        except (AzureError, OSError, TimeoutError) as error:
            said = explained(error, settings.container)
            refused = isinstance(error, ClientAuthenticationError) or not isinstance(error, HttpResponseError)
            return [Finding.error(f"{subject} cannot be written to: {said[0]}", said[1], unavailable=refused)]
    if host.scheme == "http":
        return [written, Finding.ok(f"{subject} is on an emulator, which deletes no blobs")]
    return [written, _kept(subject, (host.hostname or "").partition(".")[0], longest)]


def _kept(subject: str, account: str, longest: timedelta | None) -> Finding:
    """Report how long contents are kept.

    Blob Storage does not show the lifecycle rules of its account: they belong to Azure Resource Manager.
    """
    look = f"Look it up: az storage account management-policy show -g GROUP --account-name {account}. "
    if longest is None:
        lives = "for how long messages wait cannot be read either"
        enough = "for longer than the time to live of every subscription"
    elif longest >= _UNLIMITED:
        lives = "a subscription keeps its messages without a limit"
        enough = "for as long as messages wait: give the subscriptions a time to live"
    else:
        lives = f"a subscription keeps its messages for {format_duration(longest)}"
        enough = f"for longer than {format_duration(longest)}"
    return Finding.warning(
        f"{subject}: the lifecycle rules of the account cannot be read with these rights, and {lives}",
        f"{look}It must keep blobs {enough}, and as long again as dead letters may wait, which is nowhere to be "
        "read. Without a rule they are kept for ever.",
    )
