"""The faults that the page offers: what each does, and what the relay does about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from local.stack.environment import Source
from local.stack.supervisor import Stack
from relay.config.settings import Settings

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be injected.

    Attributes:
        name: As the form names it.
        label: On the button.
        effect: The message once it is injected.
        source: With which source only; None for both.
        order: The request to the admin port; None if a host is killed.
        is_of_servicebus: Whether the Service Bus emulator injects it, where the request names the topic or queue.
    """

    name: str
    label: str
    effect: str
    source: Source | None = None
    order: Mapping[str, Any] | None = None
    is_of_servicebus: bool = False


FAULTS = (
    Fault(
        "throttle",
        "Throttle Cosmos DB",
        "The next 20 reads of the change feed are answered with 429. The host waits and reads again.",
        Source.COSMOS,
        {"kind": "throttle", "match": {"operation": "read-feed"}, "count": 20},
    ),
    Fault(
        "cut",
        "Cut Service Bus",
        "The connection is cut after each of the next 3 transfers, so their answers are lost. The relay sends "
        "them again, and duplicate detection drops the second copies. Send an event to see it.",
        None,
        {"kind": "cut-after-transfer", "count": 3},
        is_of_servicebus=True,
    ),
    Fault(
        "busy",
        "Make Service Bus busy",
        "For 10 seconds every transfer is refused with server-busy. The relay retries. Send an event to see it.",
        None,
        {"kind": "server-busy", "for_ms": 10_000},
        is_of_servicebus=True,
    ),
    Fault(
        "kill-host",
        "Kill the host",
        "The host was killed and another one is started. It takes the leases over when they expire, within 60 "
        "seconds.",
        Source.COSMOS,
    ),
    Fault(
        "kill-host",
        "Kill the worker",
        "The worker was killed and another one is started. It takes the shards over when their claims expire.",
        Source.SQL,
    ),
)


def offered(source: Source) -> list[Fault]:
    """Return the faults for a stack of this source."""
    return [fault for fault in FAULTS if fault.source in (None, source)]


async def inject(stack: Stack, stream: Settings, fault: Fault) -> None:
    """Inject a fault into what a stream uses, once.

    Raises aiohttp's errors, or PartFailed if a new host does not start.
    """
    if fault.order is None:
        await stack.replace_host()
        return
    url, order = f"http://127.0.0.1:{stack.outbox.details['port']}", dict(fault.order)
    if fault.is_of_servicebus:
        url = stack.administration[f"{stream.servicebus.setting}_ADMIN"]
        order["entity"] = stream.servicebus.entity
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as http,
        http.post(f"{url}/admin/faults", json=order),
    ):
        pass
