"""Databases and containers that exist from the start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.errors import CosmosError
from outbox_relay.emulators.cosmos.offers import Throughput

_SYNTAX = re.compile(r"(?P<database>[^/:]+)/(?P<container>[^/:]+):(?P<path>/.*?)(?::(?P<ttl>-?\d+))?")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to provision; `default_ttl` in seconds, -1 for on without a default, None for off."""

    database: str
    container: str
    partition_key_path: str
    default_ttl: int | None = None

    @classmethod
    def parse(cls, text: str) -> ContainerSpec:
        """Read `database/container:/partitionKeyPath[:ttl]`. Raises ValueError."""
        match = _SYNTAX.fullmatch(text)
        if match is None:
            raise ValueError(
                f"'{text}' is not a container: write DATABASE/CONTAINER:/partitionKeyPath, and :TTL after it to "
                "turn on time to live (seconds, or -1 without a default)."
            )
        ttl = match["ttl"]
        return cls(match["database"], match["container"], match["path"], None if ttl is None else int(ttl))


def provision(account: Account, specs: Iterable[ContainerSpec]) -> None:
    """Create the missing containers. Raises ValueError if one exists with another key or TTL, or is invalid."""
    for spec in specs:
        try:
            _provision(account, spec)
        except CosmosError as error:
            raise ValueError(f"Cannot provision {spec.database}/{spec.container}: {error.message}") from error


def _provision(account: Account, spec: ContainerSpec) -> None:
    catalog = account.catalog
    database = catalog.databases.get(spec.database) or catalog.create_database(spec.database)
    partition_key = {"paths": [spec.partition_key_path], "kind": "Hash", "version": 2}
    existing = database.containers.get(spec.container)
    if existing is not None:
        if existing.definition["partitionKey"] != partition_key or existing.default_ttl != spec.default_ttl:
            raise ValueError(
                f"Container {spec.database}/{spec.container} exists with partition key "
                f"{existing.definition['partitionKey']['paths']} and default TTL {existing.default_ttl}, not "
                f"those requested. Use another --data file, or change the container."
            )
        return
    definition: dict[str, object] = {"id": spec.container, "partitionKey": partition_key}
    if spec.default_ttl is not None:
        definition["defaultTtl"] = spec.default_ttl
    account.create_container(database, definition, Throughput.default())
