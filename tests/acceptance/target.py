"""The target of the tests: emulators in this process, or the services that the environment names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

TARGET = "OUTBOX_RELAY_TARGET"
SUBSCRIPTION = "OUTBOX_RELAY_SUBSCRIPTION"
LACKS = "OUTBOX_RELAY_LACKS"

FEATURES = {
    "batch-etags": "an operation of a transactional batch fails if its ETag is not the current one",
    "batch-isolation": "of two concurrent transactional batches that create the same document, one writes nothing",
    "null-character": "a string may hold U+0000",
    "message-limit": "the topic refuses a single message that is larger than a batch may be",
}
"""Features that some targets lack: the names for `needs` and OUTBOX_RELAY_LACKS."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the services are.

    Attributes:
        environment: The settings, as docs/settings.md names them.
        subscription: A subscription that receives every event, requires sessions and has no other receiver.
    """

    environment: Mapping[str, str]
    subscription: str


def named_target(environment: Mapping[str, str]) -> Target | None:
    """Return the target that the environment names; None means emulators started by the tests.

    Raises:
        ValueError: The target is unknown, or the subscription is not set.
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
    """Return the features that OUTBOX_RELAY_LACKS lists, separated by spaces.

    Raises:
        ValueError: A name is not one of FEATURES.
    """
    names = frozenset(environment.get(LACKS, "").split())
    if unknown := sorted(names - FEATURES.keys()):
        raise ValueError(f"{LACKS} names {', '.join(unknown)}: use only {', '.join(FEATURES)}.")
    return names


def needs(feature: str) -> pytest.MarkDecorator:
    """Mark a test of a feature that some targets lack. It runs there too; XPASS shows that they have it."""
    return pytest.mark.xfail(
        feature in lacking(os.environ), reason=f"the target lacks {feature}: {FEATURES[feature]}", strict=False
    )
