"""Calls a handler, whichever kind of function it is."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from inbox.messages import Message
from inbox.tracing import processing

Handler = Callable[[Message], Awaitable[object] | object]


async def call(handler: Handler, message: Message) -> None:
    """Call it in a span of its own. Raises what it raises."""
    with processing(message):
        result = handler(message)
        if inspect.isawaitable(result):
            await result
