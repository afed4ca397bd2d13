"""Chooses what reports on messages, by whether opentelemetry-api (the extra `telemetry`) is installed."""

from __future__ import annotations

from outbox_relay.inbox.telemetry import Telemetry

try:
    from outbox_relay.inbox.instruments import Instruments
except ImportError:

    def telemetry_of(topic: str, subscription: str | None) -> Telemetry:
        """Return telemetry that reports nothing: opentelemetry-api is not installed."""
        return Telemetry()

else:

    def telemetry_of(topic: str, subscription: str | None) -> Telemetry:
        """Return the telemetry for the messages of a subscription, or of a queue."""
        return Instruments(topic, subscription)
