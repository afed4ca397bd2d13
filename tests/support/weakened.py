"""Takes one safeguard out of the app whose process this runs in, to see that the tests would notice.

A copy of the app (`tests/support/app.py`) has this module next to its function_app.py, which calls one of these
functions before it loads what is deployed.
"""

# ruff: noqa: B010
from __future__ import annotations

import azure.functions as func

from relay.backends.cosmos import source
from relay.servicebus.pipelined.link import Link
from relay.servicebus.pool import PooledSender


def without_retry_policy() -> None:
    """The function has no `@app.retry`."""
    setattr(func.FunctionApp, "retry", lambda app, **policy: lambda function: function)


def without_discarding_senders() -> None:
    """A link is used again after a send on it has failed."""
    setattr(PooledSender, "discard", lambda self: None)
    setattr(Link, "is_usable", True)


def without_order_within_a_commit() -> None:
    """The documents of a transaction are taken in the order in which the change feed has them."""
    setattr(source, "in_commit_order", lambda unordered: unordered)
