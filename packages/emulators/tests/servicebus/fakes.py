"""A fake clock, fake receivers, and messages as clients encode them, for tests without a network."""

from __future__ import annotations

from typing import Any

from proton import Message as ProtonMessage
from proton import symbol

from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.sessions import Session
from outbox_relay.emulators.servicebus.timers import TimerQueue

START_MS = 1_700_000_000_000


class FakeClock:
    """A clock that stops until it is advanced."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.timers = TimerQueue(lambda: self.now_ms)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and run what comes due."""
        self.now_ms += milliseconds
        self.timers.run_due()


class Receiver:
    """A consumer that only counts its calls."""

    def __init__(self) -> None:
        self.woken = 0
        self.granted: list[str] = []
        self.lost = 0

    def wake(self) -> None:
        self.woken += 1

    def session_granted(self, session: Session) -> None:
        self.granted.append(session.id)

    def session_lost(self) -> None:
        self.lost += 1


def encoded(
    body: bytes = b"{}",
    *,
    message_id: str | None = None,
    session_id: str | None = None,
    partition_key: str | None = None,
    scheduled_ms: int | None = None,
    ttl_ms: int | None = None,
    properties: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """A message as a client would encode it."""
    message = ProtonMessage(body=body, inferred=True, id=message_id, group_id=session_id, **fields)
    if properties is not None:
        message.properties = properties  # type: ignore[assignment]
    annotations: dict[Any, Any] = {}
    if partition_key is not None:
        annotations[symbol("x-opt-partition-key")] = partition_key
    if scheduled_ms is not None:
        annotations[symbol("x-opt-scheduled-enqueue-time")] = scheduled_ms
    if annotations:
        message.annotations = annotations
    if ttl_ms is not None:
        message.ttl = ttl_ms / 1000
    return bytes(message.encode())


def a_message(**fields: Any) -> Message:
    """A message as the broker holds it."""
    return parse(encoded(**fields))


def decoded(data: bytes) -> Any:
    """A message as Proton decodes it; its own annotations are too narrow to work with."""
    message = ProtonMessage()
    message.decode(data)
    return message
