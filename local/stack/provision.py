"""`python -m local provision`: creates what infra/ creates in Azure, on any Cosmos DB account or emulator."""

from __future__ import annotations

import argparse
import os
import sys

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from local.stack.environment import CONTAINERS, DATABASE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `provision`."""
    parser.add_argument(
        "--connection-string",
        default=os.environ.get("COSMOS"),
        help="of the account (default: the setting COSMOS)",
    )


async def run(arguments: argparse.Namespace) -> int:
    """Create the missing database and containers: 0; 1 when the account refuses or does not answer; 2 without a
    connection string.
    """
    if not arguments.connection_string:
        print("No account: set COSMOS or pass --connection-string.", file=sys.stderr)
        return 2
    try:
        client = CosmosClient.from_connection_string(arguments.connection_string)
    except ValueError as error:
        print(f"The connection string cannot be read: {error}", file=sys.stderr)
        return 2
    try:
        async with client:
            database = await client.create_database_if_not_exists(DATABASE)
            for name, path, ttl in CONTAINERS:
                await database.create_container_if_not_exists(name, PartitionKey(path), default_ttl=ttl)
                print(f"{DATABASE}/{name}: partition key {path}, default TTL {'off' if ttl is None else ttl}")
    except CosmosHttpResponseError as error:
        print(f"The account refused the request: {error.message}", file=sys.stderr)
        return 1
    except AzureError as error:
        print(f"The account does not answer: {error.message}", file=sys.stderr)
        return 1
    finally:
        await client.close()
    return 0
