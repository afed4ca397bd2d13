"""The containers that `python -m local provision` and a stack create."""

from __future__ import annotations

from argparse import Namespace

from azure.cosmos.aio import CosmosClient

from local.stack import provision
from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_emulators.cosmos.server import CosmosServer


async def test_the_lock_of_a_dead_host_expires_in_the_lease_container() -> None:
    async with CosmosServer() as server:
        assert await provision.run(Namespace(connection_string=server.connection_string)) == 0

        async with CosmosClient.from_connection_string(server.connection_string) as client:
            database = client.get_database_client(DATABASE)
            ttls = {
                name: (await database.get_container_client(name).read()).get("defaultTtl")
                for name, *_ in CONTAINERS
            }

    assert ttls == {"data": -1, "leases": -1, "quarantine": None}
    assert [container_argument(*spec) for spec in CONTAINERS][1] == "outbox/leases:/id:-1"
