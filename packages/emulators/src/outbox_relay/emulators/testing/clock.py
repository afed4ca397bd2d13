"""Time that a test controls, and the keep-alive of an idle sender, which otherwise takes 30 s."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender


@dataclass
class ManualClock:
    """Time that passes only when `advance` is called: the `clock` of `cosmos_account`.

    Attributes:
        now: Seconds since 1970; the system's time at first.
    """

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass."""
        self.now += seconds


async def keep_alive(sender: ServiceBusSender) -> None:
    """Let an idle sender read what the service has sent it, such as a DETACH.

    One turn of `AMQPClientAsync._keep_alive_async` (azure-servicebus 7.15.0), which no public method runs. Like
    the SDK's, it ignores the exceptions of that read.
    """
    handler: Any = sender._handler
    with suppress(Exception):
        await handler._connection.listen(wait=1, batch=handler._link.current_link_credit)
