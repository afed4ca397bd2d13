"""The JSON objects of the console: values of `model` with the names of their attributes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from relay import __version__
from relay_operator.console.model import Snapshot, Timeline, Tracked


def members(value: Snapshot | Timeline | Tracked) -> dict[str, Any]:
    """Return the members of the JSON object of a value.

    An event has its `state` as well, as the page shows it, and `not_measured`: why no time is known.
    A snapshot has the `version` of the console, which `python -m relay --version` prints, and no earlier events.
    """
    match value:
        case Snapshot():
            found = asdict(replace(value, recent=(), earlier=()))
            del found["earlier"]
            return {"version": __version__, **found, "recent": list(map(members, value.recent))}
        case Timeline():
            return {**asdict(replace(value, events=())), "events": list(map(members, value.events))}
        case Tracked():
            return {**asdict(value), "state": value.state, "not_measured": value.not_measured}
