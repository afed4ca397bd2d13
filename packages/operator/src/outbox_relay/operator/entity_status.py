"""The status of a topic, a queue or a subscription, as the management endpoint reports it, and how to set it."""

from __future__ import annotations

from typing import Any

from relay.backends.findings import Finding, Level
from relay.config.settings import Settings
from relay.core.remedy import AZURE_CLI, Remedy, Sentence

_ANY_GROUP = "GROUP"


def status_finding(subject: str, status: Any, otherwise: Level, remedy: str) -> Finding:
    """Ok if the entity is active; otherwise a finding of this level, with the remedy."""
    name = getattr(status, "value", status)
    if name == "Active":
        return Finding.ok(f"{subject} is active")
    return Finding(otherwise, f"{subject} is {name}", remedy)


def set_active(settings: Settings, subscription: str | None = None, group: str | None = None) -> str:
    """Return the remedy for a topic or queue, or a subscription of the topic, that is not active.

    An emulator has no command of the Azure CLI.
    https://learn.microsoft.com/cli/azure/servicebus/topic#az-servicebus-topic-update

    Args:
        settings: Those of the stream.
        subscription: The subscription's name; None for the topic or queue itself.
        group: The resource group of the namespace; None if it is not known.
    """
    namespace, _, zone = settings.servicebus.connection.host.partition(".")
    if not zone.startswith("servicebus."):
        return "Set its status to Active."
    # In Resource Manager, each / in the name of an entity is a ~.
    entity = settings.servicebus.entity.replace("/", "~")
    kind = "queue" if settings.servicebus.is_queue else "topic" if subscription is None else "topic subscription"
    names = [("--name", entity)] if subscription is None else [("--topic-name", entity), ("--name", subscription)]
    command = Remedy(
        f"servicebus {kind} update",
        options=("--status Active",),
        chosen=(("--resource-group", group or _ANY_GROUP), ("--namespace-name", namespace), *names),
        program=AZURE_CLI,
    )
    return Sentence("Set its status to Active: ", command)
