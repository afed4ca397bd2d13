"""Finds a running stack by its env file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from local.stack import lock

READY = "LOCAL_STACK_READY"


class NoStackError(Exception):
    """No stack runs with this env file; the message says how to start one, or to name another's."""


def of_running(env_file: Path) -> Mapping[str, str]:
    """Return the settings that a running stack has written. Raises NoStackError."""
    remedy = f"{lock.how_to_start(env_file)}, or name its file with --env-file."
    if not env_file.exists():
        raise NoStackError(f"No local stack runs: there is no {env_file}. {remedy}")
    try:
        values = {name: value for name, value in dotenv_values(env_file).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise NoStackError(f"{env_file} cannot be read: {error}. {remedy}") from error
    if not ("COSMOS" in values or "SQL" in values):
        raise NoStackError(f"{env_file} is not the file of a local stack: it has neither COSMOS nor SQL. {remedy}")
    # A demo's stack has no lock.
    if READY in values and lock.running(env_file) is None:
        raise NoStackError(f"The local stack of {env_file} does not run any more. {remedy}")
    return values
