"""A subscription with one session in memory, and what the SDK raises where a session cannot be received from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPLinkError, TokenAuthFailure
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)


def _refused_token(status: int) -> Exception:
    kind: Any = TokenAuthFailure
    inner = kind(status, b"as the test says")
    return ServiceBusAuthenticationError(message="as the test says", error=inner)


def refusals() -> dict[str, Exception]:
    """Errors of opening a receiver, by cause; `tests/contracts/test_receivers.py` compares them."""
    kind: Any = AMQPConnectionError
    unreachable = kind(condition=b"amqp:socket-error")
    return {
        "no subscription": _refused_token(404),
        "wrong key": _refused_token(401),
        "no sessions": ServiceBusError("no sessions", error=AMQPLinkError(condition=b"amqp:not-allowed")),
        "held": SessionCannotBeLockedError(
            message="held", error=AMQPLinkError(condition=b"com.microsoft:session-cannot-be-locked")
        ),
        "unreachable": ServiceBusConnectionError(message="unreachable", error=unreachable),
    }


@dataclass(eq=False)
class Message:
    """A message, as far as the commands read one."""

    message_id: str


@dataclass(eq=False)
class Subscription:
    """A subscription with the messages of one session, which one receiver at a time may hold.

    Attributes:
        messages: The messages that are not completed.
        holder: The receiver that has the lock.
    """

    messages: list[Message] = field(default_factory=list)
    holder: Receiver | None = None

    @classmethod
    def of(cls, *ids: str) -> Subscription:
        """A subscription with messages of these ids."""
        return cls([Message(identifier) for identifier in ids])


@dataclass(eq=False)
class Receiver:
    """The SDK's receiver of that session.

    Attributes:
        refuses: What opening it raises.
        fails: What receiving raises.
        quiet: How many calls find nothing before the first message arrives.
        waits: How long each call was to wait, in seconds.
        completed: The ids of the completed messages.
    """

    subscription: Subscription = field(default_factory=Subscription)
    refuses: Exception | None = None
    fails: Exception | None = None
    quiet: int = 0
    waits: list[float] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    closed: bool = False
    session: object = field(default_factory=object)
    _delivered: list[Message] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        if self.refuses is not None:
            raise self.refuses
        if self.subscription.holder is not None:
            raise refusals()["held"]
        self.subscription.holder = self
        return self

    async def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[Message]:
        self.waits.append(max_wait_time)
        await asyncio.sleep(0)
        self._check()
        if self.quiet:
            self.quiet -= 1
            return []
        waiting = [message for message in self.subscription.messages if message not in self._delivered]
        self._delivered += waiting[:max_message_count]
        return waiting[:max_message_count]

    async def complete_message(self, message: Message) -> None:
        self._check()
        self.subscription.messages.remove(message)
        self.completed.append(message.message_id)

    async def close(self) -> None:
        self.closed = True
        if self.subscription.holder is self:
            self.subscription.holder = None

    def lose_lock(self) -> None:
        """Let the lock expire, or be taken away."""
        self.subscription.holder = None

    def _check(self) -> None:
        if self.fails is not None:
            raise self.fails
        if self.subscription.holder is not self:
            raise SessionLockLostError(message="as the test says")
