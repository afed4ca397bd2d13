"""The status of a topic or a subscription, as the management endpoint reports it."""

from __future__ import annotations

from typing import Any

from relay.backends.findings import Finding, Level


def status_finding(subject: str, status: Any, otherwise: Level) -> Finding:
    """Ok if the entity is active; otherwise a finding of this level, with the remedy."""
    name = getattr(status, "value", status)
    if name == "Active":
        return Finding.ok(f"{subject} is active")
    return Finding(otherwise, f"{subject} is {name}", "Set its status to Active.")
