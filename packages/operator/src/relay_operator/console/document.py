"""The JSON objects of the console: values of `model` with the names of their attributes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from relay import __version__
from relay_operator.console.model import Snapshot, Timeline, Tracked


def members(value: Snapshot | Timeline | Tracked) -> dict[str, Any]:
    """Return the members of the JSON object of a value.

    A snapshot has the `version` of the console as well, which `python -m relay --version` prints.
    """
    found = asdict(value)
    return {"version": __version__, **found} if isinstance(value, Snapshot) else found
