"""The Service Bus emulator of a test: its clock, and requests to its admin port about the topic."""

from __future__ import annotations

import time
from typing import Any

import aiohttp


class TurnableClock:
    """Milliseconds since the epoch, which a test can turn forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return int(time.time() * 1000) + self.ahead_ms


async def admin(port: int, method: str, path: str, **content: Any) -> Any:
    """Send a request to `/admin/…`; returns the JSON of the answer."""
    url = f"http://127.0.0.1:{port}/admin/{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, json=content or None) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def refuse(port: int, message_id: str, condition: str) -> None:
    """Refuse, with an AMQP condition, every transfer that contains a message of this id."""
    await admin(port, "POST", "refuse", entity="domain-events", message_id=message_id, condition=condition)


async def stop_refusing(port: int) -> None:
    """Accept everything again."""
    await admin(port, "DELETE", "refuse")


async def set_topic_status(port: int, status: str) -> None:
    """Set the topic's status: Active, SendDisabled, ReceiveDisabled or Disabled."""
    await set_status(port, "domain-events", status)


async def set_status(port: int, entity: str, status: str) -> None:
    """Set the status of a topic or queue."""
    await admin(port, "POST", f"entities/{entity}/status", status=status)


async def topic_counts(port: int, entity: str = "domain-events") -> dict[str, Any]:
    """The counts of accepted and refused messages, and of dropped duplicates, of the topic or another entity."""
    counts: dict[str, Any] = (await admin(port, "GET", "entities"))[entity]
    return counts


async def answer_oversized(port: int, answer: str) -> None:
    """Have the broker answer oversized transfers in one way, instead of drawing one.

    `rejected-then-detached`, `detached-without-disposition` or `rejected-alone`.
    """
    await inject(port, kind="answer-oversized", entity="domain-events", answer=answer)


async def inject(port: int, **fault: Any) -> int:
    """Inject a fault, as `POST /admin/faults` takes it; returns its id."""
    return int((await admin(port, "POST", "faults", **fault))["id"])


async def edges(port: int) -> dict[str, int]:
    """Number of times each edge was met since the broker started."""
    return dict((await admin(port, "GET", "edges"))["edges"])
