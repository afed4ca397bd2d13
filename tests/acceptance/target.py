"""What the tests run against: the local stack in this process, or the services that the environment names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

TARGET = "OUTBOX_RELAY_TARGET"
SUBSCRIPTION = "OUTBOX_RELAY_SUBSCRIPTION"
LACKS = "OUTBOX_RELAY_LACKS"

FEATURES = {
    "batch-etags": "an operation of a transactional batch fails when its ETag is that of another version",
    "batch-isolation": "of two transactional batches that create the same document at once, one leaves nothing",
    "null-character": "a string may hold U+0000",
    "message-limit": "the topic refuses a single message that is larger than a batch may be",
}
"""What not every target has; `needs` takes these names, and so does OUTBOX_RELAY_LACKS."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the services are.

    Attributes:
        environment: The settings, as docs/settings.md names them.
        subscription: One that takes every event, requires sessions and that nobody else receives from.
    """

    environment: Mapping[str, str]
    subscription: str


def named_target(environment: Mapping[str, str]) -> Target | None:
    """The target that the environment names; None stands for the local stack, to be started here.

    Raises:
        ValueError: The environment contradicts itself, or lacks the subscription.
    """
    kind = environment.get(TARGET) or "local"
    if kind == "local":
        return None
    if kind != "environment":
        raise ValueError(f"{TARGET} is {kind!r}: set 'local' or 'environment'.")
    subscription = environment.get(SUBSCRIPTION)
    if not subscription:
        raise ValueError(f"{SUBSCRIPTION} is not set: name a subscription of the topic that requires sessions.")
    return Target(environment, subscription)


def lacking(environment: Mapping[str, str]) -> frozenset[str]:
    """The features that OUTBOX_RELAY_LACKS names, separated by spaces.

    Raises:
        ValueError: One of them is none of FEATURES.
    """
    names = frozenset(environment.get(LACKS, "").split())
    if unknown := sorted(names - FEATURES.keys()):
        raise ValueError(f"{LACKS} names {', '.join(unknown)}: it may name {', '.join(FEATURES)}.")
    return names


def needs(feature: str) -> pytest.MarkDecorator:
    """Marks a test of what some targets lack; there it runs all the same, and XPASS tells that it is there now."""
    return pytest.mark.xfail(
        feature in lacking(os.environ), reason=f"the target lacks {feature}: {FEATURES[feature]}", strict=False
    )
