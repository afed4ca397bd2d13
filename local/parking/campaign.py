"""The campaign: a broker, two consumers and an operator that die again and again, and what came of it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from local.parking.processes import Settings
from local.parking.stores import QUEUE, open_desk
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.server import ServiceBusServer

_ROLES = ("consumer", "consumer", "operator")
_KEYS = 6
_CHANCE = 0.04
_SENT_AT_ONCE = 20
_LOOKS_EVERY_S = 0.1
_MOST_DELIVERIES = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a campaign.

    Attributes:
        events: Number of events that were published.
        effects: Number of those that had their effect.
        discarded: Number of those that an operator discarded instead.
        kills: Number of processes that were killed.
        edges: Where they were, and how often.
        wrong: What must not have happened, a line each.
    """

    events: int
    effects: int
    discarded: int
    kills: int
    edges: dict[str, int]
    wrong: list[str]

    def to_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))


async def run(database: str, folder: Path, *, events: int, kills: int, limit_s: float) -> Outcome:
    """Publish events, and kill processes until there were enough kills; then wait until everything is settled.

    Args:
        database: The address of the store.
        folder: For the logs.
        events: Number of events, at least.
        kills: Number of kills, at least: while it is not reached, more events follow.
        limit_s: Time after which what is not settled is stuck.
    """
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ServiceBusServer(Entities.from_document(_entities())))
        await stack.enter_async_context(open_desk(database))  # creates its tables
        campaign = _Campaign(server, database, folder, kills)
        stack.push_async_callback(campaign.stop)
        publishing = asyncio.create_task(campaign.publish(events))
        try:
            async with asyncio.timeout(limit_s):
                await campaign.until_settled(publishing)
        except TimeoutError:
            return await campaign.outcome([f"stuck: not everything was settled within {limit_s:g} s"])
        finally:
            publishing.cancel()
        return await campaign.outcome([])


class _Campaign:
    def __init__(self, server: ServiceBusServer, database: str, folder: Path, kills: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._server = server
        self._database = database
        self._folder = folder
        self._kills = kills
        self._edges, self._intents = folder / "edges", folder / "intents"
        for file in (self._edges, self._intents):
            file.write_text("")
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._published: list[tuple[str, int, str]] = []

    async def publish(self, events: int) -> None:
        """Publish this many more events, the keys in turn, a few at a time."""
        first = len(self._published)
        async with (
            ServiceBusClient.from_connection_string(self._server.connection_string) as client,
            client.get_queue_sender(QUEUE) as sender,
        ):
            for start in range(first, first + events, _SENT_AT_ONCE):
                batch = []
                for event in range(start, min(first + events, start + _SENT_AT_ONCE)):
                    key, number = f"k{event % _KEYS}", event // _KEYS + 1
                    identifier = f"{key}-{number}"
                    self._published.append((key, number, identifier))
                    batch.append(
                        ServiceBusMessage(
                            b"{}",
                            session_id=key,
                            message_id=identifier,
                            subject="Counted",
                            application_properties={"sequence": number},
                        )
                    )
                await sender.send_messages(batch)
                await asyncio.sleep(0)

    async def until_settled(self, publishing: asyncio.Task[None]) -> None:
        """Replace processes that were killed, until there were enough kills and everything is settled."""
        async with open_desk(self._database) as desk:
            while True:
                await self._restart()
                if publishing.done():
                    publishing.result()
                    waiting = self._server.broker.namespace.outlet(QUEUE).messages.counts()
                    if not waiting.active and not waiting.locked and not await desk.store.keys():
                        if self._deaths >= self._kills:
                            return
                        await self.publish(_SENT_AT_ONCE)
                await asyncio.sleep(_LOOKS_EVERY_S)

    async def _restart(self) -> None:
        for place, role in enumerate(_ROLES):
            process = self._processes.get(place)
            if process is not None and process.returncode is None:
                continue
            settings = Settings(
                self._server.connection_string,
                self._database,
                _CHANCE if self._deaths < self._kills else 0.0,
                str(self._edges),
                str(self._intents),
            )
            with (self._folder / f"{role}-{place}.log").open("ab") as log:
                self._processes[place] = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "local.parking.processes", role, settings.to_json()),
                    stdout=log,
                    stderr=log,
                )

    @property
    def _deaths(self) -> int:
        return len(_lines(self._edges))

    async def stop(self) -> None:
        """End what runs."""
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def outcome(self, wrong: Sequence[str]) -> Outcome:
        """Judge the effects that are there."""
        async with open_desk(self._database) as desk:
            effects = await desk.effects()
        dead = self._server.broker.namespace.outlet(QUEUE).dead_letters.peek(0, 10)
        intents = set(_lines(self._intents))
        edges = Counter(_lines(self._edges))
        had = {identifier for _, _, identifier in effects}
        return Outcome(
            len(self._published),
            len(had),
            len(intents - had),
            edges.total(),
            dict(sorted(edges.items())),
            [
                *wrong,
                *judge(self._published, effects, intents),
                *(f"{each.message.message_id} was dead-lettered" for each in dead),
            ],
        )


def judge(
    published: Iterable[tuple[str, int, str]], effects: Sequence[tuple[str, int, str]], intents: set[str]
) -> list[str]:
    """Return the faults of the effects, in their order, against the published events.

    An event that somebody wanted to discard may have no effect.
    """
    wrong = [
        f"{identifier} had {count} effects"
        for identifier, count in Counter(each[2] for each in effects).items()
        if count > 1
    ]
    had = {identifier for _, _, identifier in effects}
    wrong += [f"{identifier} had no effect" for _, _, identifier in published if identifier not in had | intents]
    for key in {key for key, _, _ in effects}:
        numbers = [number for its, number, _ in effects if its == key]
        wrong += [
            f"{key}-{after} came behind {key}-{before}" for before, after in pairwise(numbers) if after <= before
        ]
    return wrong


def _lines(file: Path) -> list[str]:
    return file.read_text().split("\n")[:-1]


def _entities() -> object:
    queue = {
        "Name": QUEUE,
        "Properties": {"RequiresSession": True, "MaxDeliveryCount": _MOST_DELIVERIES, "LockDuration": "PT5S"},
    }
    return {"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [queue], "Topics": []}]}}
