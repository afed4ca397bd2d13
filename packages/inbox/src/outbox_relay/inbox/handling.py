"""Calls a handler, whichever kind of function it is."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from outbox_relay.inbox.contents import Contents, whole
from outbox_relay.inbox.messages import Message

_closed: ContextVar[list[int] | None] = ContextVar("inbox_closed", default=None)


def note_closed(sequence: int) -> None:
    """Note that a number was missing until now. A store that repeats its transaction notes it again."""
    noted = _closed.get()
    if noted is not None:
        noted[:] = [sequence]


def noting_closed() -> list[int]:
    """Put what the current task notes from now on into the list that is returned."""
    noted: list[int] = []
    _closed.set(noted)
    return noted


_log = logging.getLogger(__name__)

Handler = Callable[[Message], Awaitable[object] | object]


async def call(handler: Handler, message: Message) -> None:
    """Call it. Raises what it raises. The task's name says what it handles."""
    if (task := asyncio.current_task()) is not None:
        task.set_name(f"The handler of message {message.id!r} of session {message.key!r}")
    closed = noting_closed()
    result = handler(message)
    if inspect.isawaitable(result):
        await result
    for number in closed:
        _log.info("Message %r of key %r closes a gap: its number %s was missing", message.id, message.key, number)


def on_whole(handler: Handler, contents: Contents | None) -> Handler:
    """Return a handler that gets the bodies of large events too, and raises an error if a body cannot be had."""

    async def handle(message: Message) -> None:
        result = handler(await whole(message, contents))
        if inspect.isawaitable(result):
            await result

    return handle
