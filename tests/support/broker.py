"""What the tests ask of the local Service Bus's admin port."""

from __future__ import annotations

from typing import Any

import aiohttp


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
