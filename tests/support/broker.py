"""What the tests ask of the local Service Bus's admin port, and of senders that idle."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import aiohttp
from azure.servicebus.aio import ServiceBusSender


async def admin(port: int, method: str, path: str, **content: Any) -> Any:
    """One request to `/admin/…`; returns the answer's JSON."""
    url = f"http://127.0.0.1:{port}/admin/{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, json=content or None) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def refuse(port: int, message_id: str, condition: str) -> None:
    """Refuse, with an AMQP condition, every transfer that holds this message id."""
    await admin(port, "POST", "refuse", entity="domain-events", message_id=message_id, condition=condition)


async def stop_refusing(port: int) -> None:
    """Accept everything again."""
    await admin(port, "DELETE", "refuse")


async def set_topic_status(port: int, status: str) -> None:
    """Active, SendDisabled, ReceiveDisabled or Disabled."""
    await admin(port, "POST", "entities/domain-events/status", status=status)


async def topic_counts(port: int) -> dict[str, Any]:
    """What the topic has accepted, refused and dropped as duplicates."""
    counts: dict[str, Any] = (await admin(port, "GET", "entities"))["domain-events"]
    return counts


async def answer_oversized(port: int, answer: str) -> None:
    """Have transfers that are too large answered in one way, instead of a way that is drawn.

    `rejected-then-detached`, `detached-without-disposition` or `rejected-alone`.
    """
    await inject(port, kind="answer-oversized", entity="domain-events", answer=answer)


async def inject(port: int, **fault: Any) -> int:
    """Put a fault to work, as `POST /admin/faults` takes it; returns its id."""
    return int((await admin(port, "POST", "faults", **fault))["id"])


async def edges(port: int) -> dict[str, int]:
    """How often each edge was met since the broker started."""
    return dict((await admin(port, "GET", "edges"))["edges"])


async def keep_alive(sender: ServiceBusSender) -> None:
    """Have an idle sender read what the service has sent it, as its keep-alive does every 30 s.

    One turn of `AMQPClientAsync._keep_alive_async` (azure-servicebus 7.15.0), which no public call makes. It goes
    on over whatever the reading raises.
    """
    handler: Any = sender._handler
    with suppress(Exception):
        await handler._connection.listen(wait=1, batch=handler._link.current_link_credit)
