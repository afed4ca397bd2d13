"""`python -m local provision`: creates what infra/ creates in Azure, on any Cosmos DB account or emulator.

With a relay.toml in the project, or the one that RELAY_FILE names, these are the containers of every stream.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError
from cyclopts import Parameter

from local.stack.destinations import containers_of
from relay.config.settings import FILE_VARIABLE, Settings
from relay.config.streams import read_file, read_streams
from relay.core.errors import SettingsError

# Of what is not used here, and has to be set.
_NAMESPACE = "Endpoint=sb://unused;SharedAccessKeyName=unused;SharedAccessKey=dW51c2Vk"
_SQL = "postgresql://unused/unused"


async def run(
    *,
    connection_string: Annotated[
        str | None, Parameter(metavar="TEXT", help="of the account (default: the setting COSMOS)")
    ] = None,
) -> int:
    """Create the missing databases and containers, and return the exit code.

    It is 0; 1 when the account refuses or does not answer; 2 without a connection string, or with a wrong
    relay.toml.
    """
    connection_string = connection_string or os.environ.get("COSMOS")
    if not connection_string:
        print("No account: set COSMOS or pass --connection-string.", file=sys.stderr)
        return 2
    try:
        client = CosmosClient.from_connection_string(connection_string)
        needed = containers_of(_streams(connection_string))
    except ValueError as error:
        print(f"The connection string cannot be read: {error}", file=sys.stderr)
        return 2
    except SettingsError as error:
        await client.close()
        print(error, file=sys.stderr)
        return 2
    try:
        async with client:
            for (database, name), (path, ttl) in needed.items():
                made = await client.create_database_if_not_exists(database)
                await made.create_container_if_not_exists(name, PartitionKey(path), default_ttl=ttl)
                print(f"{database}/{name}: partition key {path}, default TTL {'off' if ttl is None else ttl}")
    except CosmosHttpResponseError as error:
        print(f"The account refused the request: {error.message}", file=sys.stderr)
        return 1
    except AzureError as error:
        print(f"The account does not answer: {error.message}", file=sys.stderr)
        return 1
    finally:
        await client.close()
    return 0


def _streams(connection_string: str) -> list[Settings]:
    """Return the streams of the project on this account. Raises SettingsError."""
    chosen = {name: value for name, value in os.environ.items() if name == FILE_VARIABLE}
    _, found = read_file(chosen)
    namespaces = {each.connection: _NAMESPACE for each in found.destinations.values()}
    sql = {"SQL": _SQL} if any(each.feed for each in found.sources.values()) else {}
    return read_streams({**chosen, **namespaces, **sql, "COSMOS": connection_string})
