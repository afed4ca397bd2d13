"""The settings that point an app at a local stack, as a mapping and as an env file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any


class Source(StrEnum):
    """Where the events come from."""

    COSMOS = "cosmos"
    SQL = "sql"


DATABASE = "outbox"
TOPIC = "domain-events"

# As infra/ provisions them in Azure: name, partition key path, default TTL in seconds (-1: each item's own).
# Leases have no TTL, but the lock under which a host creates them has one, which needs a default to take effect.
CONTAINERS = (("data", "/partitionKey", -1), ("leases", "/id", -1), ("quarantine", "/partitionKey", None))


def container_argument(name: str, partition_key: str, default_ttl: int | None) -> str:
    """Return the value of the cosmos part's `--container` for this container."""
    return f"{DATABASE}/{name}:{partition_key}" + ("" if default_ttl is None else f":{default_ttl}")


def cosmos_settings(cosmos: Mapping[str, Any]) -> dict[str, str]:
    """Return the app's settings for a Cosmos DB with these details, as it announced them."""
    return {
        "COSMOS": str(cosmos["connection_string"]),
        "COSMOS_DATABASE": DATABASE,
        "COSMOS_CONTAINER": "data",
        "COSMOS_LEASE_CONTAINER": "leases",
        "COSMOS_QUARANTINE_CONTAINER": "quarantine",
    }


def sql_settings(database: Mapping[str, Any], shards: int) -> dict[str, str]:
    """Return the settings of the relay and of the contact service for a PostgreSQL with these details."""
    return {"SQL": str(database["url"]), "SQL_SHARDS": str(shards)}


def servicebus_settings(servicebus: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings for a Service Bus with these details."""
    windows: Mapping[str, int] = servicebus["duplicate_windows_s"]
    return {
        "SERVICEBUS": str(servicebus["connection_string"]),
        "SERVICEBUS_TOPIC": TOPIC,
        **({"RELAY_DUPLICATE_WINDOW_S": str(windows[TOPIC])} if TOPIC in windows else {}),
    }


def blob_settings(azurite: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that send large events to an Azurite with these details."""
    return {"RELAY_LARGE": "claim-check", "BLOBS": str(azurite["connection_string"])}


def past_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine from the machine's proxy, in both spellings."""
    given = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = [each.strip() for each in given.split(",") if each.strip()]
    value = ",".join(hosts if "*" in hosts else dict.fromkeys([*hosts, "127.0.0.1", "localhost", "::1"]))
    return {"no_proxy": value, "NO_PROXY": value}


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Write `export NAME='value'` lines, for a POSIX shell's `source` and for `--env-file` readers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"export {name}={_quoted(value)}\n" for name, value in values.items()]
    heading = "# Written by the local stack; its keys are the emulators' public ones.\n"
    path.write_text("".join([heading, *lines]), encoding="utf-8")


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{value}'"
