"""The two containers of a trigger: found, checked, and the lease container created if the trigger says so."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from outbox_relay.emulators.functions.connections import Connections
from outbox_relay.emulators.functions.errors import (
    ContainerMissing,
    HostError,
    UnableToStart,
    describe,
    is_transient,
)
from outbox_relay.emulators.functions.trigger import CosmosTrigger

LEASE_PARTITION_KEY = "/id"
_GREMLIN_LEASE_PARTITION_KEY = "/partitionKey"


@dataclass(frozen=True, slots=True)
class TriggerContainers:
    """`lease_prefix` begins the ids of all documents that this trigger keeps in the lease container."""

    monitored: ContainerProxy
    leases: ContainerProxy
    lease_prefix: str
    leases_partitioned_by_id: bool


async def open_containers(function: str, trigger: CosmosTrigger, connections: Connections) -> TriggerContainers:
    """Open the containers of a trigger.

    Raises HostError naming the container that is missing or unsuitable, and the remedy.

    Raises AzureError if the account may answer later, UnableToStart if it refuses.
    """
    account = await connections.client(trigger.connection)
    lease_account = await connections.client(trigger.lease_connection)
    try:
        monitored, rids = await _monitored(function, trigger, account)
        leases, lease_paths = await _leases(function, trigger, lease_account)
    except AzureError as error:
        if is_transient(error):
            raise
        raise UnableToStart(f"function {function}: its containers cannot be read: {describe(error)}") from error
    if lease_paths not in ([LEASE_PARTITION_KEY], [_GREMLIN_LEASE_PARTITION_KEY]):
        raise HostError(
            f"function {function}: the lease container {trigger.lease_container!r} is partitioned by "
            f"{', '.join(lease_paths)}; it must be {LEASE_PARTITION_KEY}: create it anew"
        )
    host = urlsplit(account.client_connection.url_connection).hostname
    return TriggerContainers(
        monitored=monitored,
        leases=leases,
        # As in CosmosContainerExtensions.GetLeasePrefix in Azure/azure-cosmos-dotnet-v3.
        lease_prefix=f"{trigger.lease_container_prefix}{host}_{rids}",
        leases_partitioned_by_id=lease_paths == [LEASE_PARTITION_KEY],
    )


async def _monitored(function: str, trigger: CosmosTrigger, account: CosmosClient) -> tuple[ContainerProxy, str]:
    """Return the container, and its database's and its own resource id, joined."""
    database = account.get_database_client(trigger.database)
    container = database.get_container_client(trigger.container)
    try:
        return container, f"{(await database.read())['_rid']}_{(await container.read())['_rid']}"
    except CosmosResourceNotFoundError as error:
        raise ContainerMissing(
            f"function {function}: the container {trigger.container!r} (in database {trigger.database!r}, "
            f"connection {trigger.connection!r}) does not exist: create it, or correct the trigger's names"
        ) from error


async def _leases(
    function: str, trigger: CosmosTrigger, account: CosmosClient
) -> tuple[ContainerProxy, list[str]]:
    """Return the lease container, and the paths of its partition key."""
    if trigger.create_lease_container:
        database = await account.create_database_if_not_exists(trigger.lease_database)
        container = await database.create_container_if_not_exists(
            trigger.lease_container, PartitionKey(LEASE_PARTITION_KEY), default_ttl=-1
        )
    else:
        container = account.get_database_client(trigger.lease_database).get_container_client(
            trigger.lease_container
        )
    try:
        properties = await container.read()
    except CosmosResourceNotFoundError as error:
        raise ContainerMissing(
            f"function {function}: the lease container {trigger.lease_container!r} (in database "
            f"{trigger.lease_database!r}, connection {trigger.lease_connection!r}) does not exist: create it with "
            f"partition key {LEASE_PARTITION_KEY}, or set create_lease_container_if_not_exists on the trigger"
        ) from error
    return container, list(properties["partitionKey"]["paths"])
