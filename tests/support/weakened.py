"""Takes one safeguard out of the app whose process this runs in, to see that the tests would notice.

A copy of the app (`tests/support/app.py`) has this module next to its function_app.py, which calls one of these
functions before it loads what is deployed.
"""

# ruff: noqa: B010
from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import azure.functions as func

from relay import verdict
from relay.cosmos import source
from relay.events import Event
from relay.servicebus import publisher
from relay.servicebus.pipelined.link import Link
from relay.servicebus.pool import PooledSender
from relay.servicebus.turn import Turn


def without_retry_policy() -> None:
    """The function has no `@app.retry`."""
    setattr(func.FunctionApp, "retry", lambda app, **policy: lambda function: function)


def without_waiting_for_acceptance() -> None:
    """Every other event of a partition key goes out over a second sender; neither waits for the other."""

    class Impatient(Turn):
        async def send_in_order(self, events: Sequence[Event]) -> None:
            sender: Any = self._sender
            senders = sender._lanes if hasattr(sender, "_lanes") else sender._pool
            async with senders.acquire() as other:
                rest = Turn(
                    other,
                    self._shared,
                    self._rules,
                    self._outcome,
                )
                halves = [super().send_in_order(events[::2])]
                if len(events) > 1:
                    halves.append(rest.send_in_order(events[1::2]))
                await asyncio.gather(*halves)

    setattr(publisher, "Turn", Impatient)


def without_discarding_senders() -> None:
    """A link is used again after a send on it has failed."""
    setattr(PooledSender, "discard", lambda self: None)
    setattr(Link, "is_usable", True)


def without_order_within_a_commit() -> None:
    """The documents of a transaction are taken in the order in which the change feed has them."""
    setattr(source, "in_commit_order", lambda unordered: unordered)


def without_doubt() -> None:
    """Whatever is refused is quarantined at once, however many partition keys are refused alike."""

    setattr(verdict, "REFUSALS", 1)
    setattr(verdict, "ALIKE", math.inf)
