"""Attempts at a batch until its poisoned events are set aside, and what is in quarantine then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from azure.cosmos.aio import ContainerProxy

from outbox_relay.operator.outcomes import OUTCOME_TYPE
from relay.backends.cosmos.backend import CosmosRelay
from relay.core.documents import StoredDocument
from relay.core.errors import PublishError
from relay.core.holds import ORDER_TYPE
from relay.core.results import Outcome
from relay.core.verdict import REFUSALS
from relay.servicebus.publisher import ServiceBusPublisher


async def _nothing() -> None:
    return


async def settled(
    relay: CosmosRelay,
    documents: Iterable[StoredDocument | None],
    invocation_id: str = "i1",
    before: Callable[[], Awaitable[None]] = _nothing,
) -> Outcome:
    """The outcome of the attempt that sets aside what is refused; `before` is awaited before each attempt.

    Between the attempts, the service accepts something of another lease.
    """
    batch = list(documents)
    evidence = cast(ServiceBusPublisher, relay._publisher)._shared.evidence
    for retry_count in range(REFUSALS - 1):
        await before()
        try:
            return await relay.handle(batch, invocation_id, retry_count)
        except PublishError:
            evidence.repeated()
    await before()
    return await relay.handle(batch, invocation_id, REFUSALS - 1)


async def quarantined(container: ContainerProxy) -> list[dict[str, Any]]:
    """Return the items of a quarantine container apart from orders.

    They are records, their parts, and markers of parked keys.
    """
    return [item async for item in container.read_all_items() if item["type"] not in (ORDER_TYPE, OUTCOME_TYPE)]
