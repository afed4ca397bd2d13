"""Sessions on the SQL outbox, with a token in place of a password where the server is Azure's."""

from __future__ import annotations

from urllib.parse import urlsplit

from changefeed.connections import connect_async
from changefeed.statements import AsyncSession
from relay.identity import credential_of
from relay.settings import SqlFeed

# https://learn.microsoft.com/azure/postgresql/flexible-server/how-to-connect-with-managed-identity
_TOKEN_SCOPE = "https://ossrdbms-aad.database.windows.net/.default"
_AZURE_HOST = ".postgres.database.azure.com"


async def connect(settings: SqlFeed) -> AsyncSession:
    """A session in which each statement is a transaction.

    SQL Server's driver asks for tokens itself, as `Authentication=ActiveDirectory…` in its connection string says.

    Raises:
        changefeed.ChangefeedError: The server cannot be reached, or refuses.
        azure.core.exceptions.AzureError: There is no token for this identity.
    """
    if not needs_token(settings.connection_string):
        return await connect_async(settings.connection_string)
    async with credential_of(settings.identity) as credential:
        token = await credential.get_token(_TOKEN_SCOPE)
    return await connect_async(settings.connection_string, password=token.token)


def needs_token(connection_string: str) -> bool:
    """Whether this is the URL of a PostgreSQL server of Azure, without a password."""
    if not connection_string.startswith(("postgresql://", "postgres://")):
        return False
    url = urlsplit(connection_string)
    return url.password is None and (url.hostname or "").endswith(_AZURE_HOST)
