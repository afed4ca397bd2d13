"""Assembles a relay from a source and its store, in the same way for every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from relay.config.settings import Settings
from relay.core.pipeline import Relay
from relay.core.ports import BatchT, Source
from relay.quarantine.quarantine import StoredQuarantine
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.telemetry.attempt import RelayTelemetry

if TYPE_CHECKING:
    from relay.quarantine.items import Items
    from relay.routes.history import StreamRules
    from relay.routes.rulebook import Timelines


def assemble(settings: Settings, source: Source[BatchT], store: Items) -> Relay[BatchT]:
    """Assemble a relay from a source to Service Bus. It connects when the first event needs it."""
    return Relay(
        source,
        ServiceBusPublisher.from_settings(
            settings,
            messages.contract(
                settings.policy.cloudevents_source,
                settings.selection.fields,
                any_fields=settings.rules is not None,
            ),
        ),
        StoredQuarantine(store),
        duplicate_window_s=settings.servicebus.duplicate_window_s,
        on_poison=settings.policy.on_poison,
        attempt_timeout_s=settings.policy.attempt_timeout_s,
        telemetry=RelayTelemetry(label=settings.label),
    )


def rules_in_time(settings: Settings, timelines: Callable[[], Timelines]) -> StreamRules | None:
    """Return the rules of a stream in time; None where those of its settings count for all events."""
    if settings.rules is None:
        return None
    # Most apps have no generations.
    from relay.config.streams import selection_of
    from relay.routes.history import StreamRules
    from relay.routes.rulebook import Rulebook

    outbox, destination = settings.outbox, settings.selection.destination
    return StreamRules(
        Rulebook(timelines(), settings.rules.text, since=settings.rules.since),
        lambda rules: selection_of(rules, outbox, destination),
    )
