"""The settings that point an app at a local stack, as a mapping and as an env file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATABASE = "outbox"
TOPIC = "domain-events"

# What infra/ provisions in Azure: name, partition key path, default TTL in seconds (-1: each item's own).
# Leases have no TTL, but the lock under which a host creates them has: without a default it would never expire.
CONTAINERS = (("data", "/partitionKey", -1), ("leases", "/id", -1), ("quarantine", "/partitionKey", None))


def container_argument(name: str, partition_key: str, default_ttl: int | None) -> str:
    """The option of the cosmos part that provisions this container."""
    return f"{DATABASE}/{name}:{partition_key}" + ("" if default_ttl is None else f":{default_ttl}")


def settings_of(cosmos: Mapping[str, Any], servicebus: Mapping[str, Any]) -> dict[str, str]:
    """The app's settings for the parts that told these details when they were ready."""
    windows: Mapping[str, int] = servicebus["duplicate_windows_s"]
    return {
        "COSMOS": str(cosmos["connection_string"]),
        "COSMOS_DATABASE": DATABASE,
        "COSMOS_CONTAINER": "data",
        "COSMOS_LEASE_CONTAINER": "leases",
        "COSMOS_QUARANTINE_CONTAINER": "quarantine",
        "SERVICEBUS": str(servicebus["connection_string"]),
        "SERVICEBUS_TOPIC": TOPIC,
        **({"RELAY_DUPLICATE_WINDOW_S": str(windows[TOPIC])} if TOPIC in windows else {}),
    }


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Write `export NAME='value'` lines, which a shell's `source` and the usual `--env-file` readers take."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"export {name}={_quoted(value)}\n" for name, value in values.items()]
    path.write_text("".join(["# Written by the local stack; its keys are the emulators' public ones.\n", *lines]))


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{value}'"
