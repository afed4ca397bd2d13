"""The machine that the figures were measured on, without its name."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

import psutil

_DISTRIBUTIONS = (
    "azure-functions",
    "azure-servicebus",
    "azure-cosmos",
    "orjson",
    "aiohttp",
    "python-qpid-proton",
)


def facts() -> dict[str, str | int | float]:
    """Return cores, memory, Python and the versions of the packages that matter."""
    found: dict[str, str | int | float] = {
        "cores": psutil.cpu_count(logical=True) or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return found | {name: metadata.version(name) for name in _DISTRIBUTIONS}


def described(found: Mapping[str, str | int | float]) -> str:
    """Describe the machine as text."""
    return f"{found['cores']} cores, {found['memory_gib']} GiB of memory, {found['system']}, {found['python']}"


def packages(found: Mapping[str, str | int | float]) -> str:
    """List the packages as text."""
    return ", ".join(f"{name} {found[name]}" for name in _DISTRIBUTIONS if name in found)
