"""The local Service Bus as a separate process, and its processor time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import psutil

from local.stack.environment import TOPIC
from local.stack.parts import emulator

# The account is never used: none of the documents is quarantined.
_UNUSED_COSMOS = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=bm9uZQ==;"


class Broker:
    """A broker with one topic that has duplicate detection, and no subscriptions by default: no messages pile up.

    For each message such a topic does only what a relay waits for: it decodes the batch, looks for duplicates, and
    accepts.
    """

    def __init__(self, scratch: Path, *, ack_delay_ms: int = 0, subscriptions: Sequence[str] = ()) -> None:
        """`subscriptions` are the names of subscriptions with sessions."""
        self._scratch = scratch
        self._subscriptions = subscriptions
        self.ack_delay_ms = ack_delay_ms

    async def __aenter__(self) -> Self:
        entities = self._scratch / "bench-entities.json"
        entities.write_text(json.dumps(_entities(self._subscriptions)))
        self._part = await emulator(
            "servicebus",
            *("--port", "0", "--admin-port", "0", "--entities", str(entities), "--edges", "off"),
            *("--ack-delay-ms", str(self.ack_delay_ms)),
            log=self._scratch / "bench-servicebus.log",
        )
        self._process = psutil.Process(self._part.pid)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._part.stop()

    @property
    def connection_string(self) -> str:
        return str(self._part.details["connection_string"])

    @property
    def port(self) -> int:
        return int(self._part.details["port"])

    @property
    def process_id(self) -> int:
        return int(self._process.pid)

    def settings(self, **changed: str) -> dict[str, str]:
        """Return the environment of a relay that sends to this broker."""
        return {**environment(self.connection_string), **changed}

    def processor_seconds(self) -> float:
        """Return the processor time the broker has used so far. The kernel counts it in hundredths of a second."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @contextmanager
    def on_a_core_of_its_own(self) -> Iterator[None]:
        """Keep the broker on one core and this process off it, where there are two and the system can.

        On one core, the broker would interrupt the sender, as no machine at the other end of a
        network does.
        """
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        if len(cores) < 2:
            yield
            return
        its_own = max(cores)
        os.sched_setaffinity(self.process_id, {its_own})
        os.sched_setaffinity(0, cores - {its_own})
        try:
            yield
        finally:
            # This process first: the broker may have ended.
            os.sched_setaffinity(0, cores)
            os.sched_setaffinity(self.process_id, cores)

    async def accepted(self) -> int:
        """Return the messages the topic has accepted so far.

        Raises:
            RuntimeError: It has dropped duplicates or refused messages, which makes the measurement invalid.
        """
        counts = (await self._counts())[TOPIC]
        if counts["duplicates_dropped"] or counts["refused"]:
            raise RuntimeError(f"the broker dropped or refused messages, so this measurement is invalid: {counts}")
        return int(counts["accepted"])

    async def waiting(self, subscription: str) -> int:
        """Return the messages in a subscription, and those that a receiver has and has not settled."""
        counts = (await self._counts())[f"{TOPIC}/Subscriptions/{subscription}"]
        return int(counts["active"]) + int(counts["locked"])

    async def _counts(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._part.details['admin_port']}/admin/entities"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            counts: dict[str, Any] = await response.json()
            return counts


def environment(connection_string: str) -> dict[str, str]:
    """Return the settings of a relay that sends to the broker of this connection string."""
    return {"COSMOS": _UNUSED_COSMOS, "SERVICEBUS": connection_string, "SERVICEBUS_TOPIC": TOPIC}


def _entities(subscriptions: Sequence[str]) -> dict[str, Any]:
    topic = {
        "Name": TOPIC,
        "Properties": {
            "DefaultMessageTimeToLive": "PT1H",
            "DuplicateDetectionHistoryTimeWindow": "PT20S",
            "RequiresDuplicateDetection": True,
        },
        "Subscriptions": [{"Name": name, "Properties": {"RequiresSession": True}} for name in subscriptions],
    }
    namespace = {"Name": "bench", "Queues": [], "Topics": [topic]}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}
