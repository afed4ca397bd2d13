"""Calls a handler, whichever kind of function it is."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from inbox.contents import Contents, whole
from inbox.messages import Message

Handler = Callable[[Message], Awaitable[object] | object]


async def call(handler: Handler, message: Message) -> None:
    """Call it. Raises what it raises. The task's name says what it handles."""
    if (task := asyncio.current_task()) is not None:
        task.set_name(f"The handler of message {message.id!r} of session {message.key!r}")
    result = handler(message)
    if inspect.isawaitable(result):
        await result


def on_whole(handler: Handler, contents: Contents | None) -> Handler:
    """A handler that is given the bodies of large events too, and raises why one cannot be had."""

    async def handle(message: Message) -> None:
        result = handler(await whole(message, contents))
        if inspect.isawaitable(result):
            await result

    return handle
