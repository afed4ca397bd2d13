"""The processes of the campaign: `python -m local.parking.processes consumer|operator`, with settings as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import inbox
from local.parking.crash_points import Deadly
from local.parking.stores import QUEUE, EffectStore, open_desk

POISON_EVERY, FAILS_EVERY = 9, 14
"""Of each key's messages, which can never be handled, and which fail until they are mended."""

# What an operator does about a parked key, and how often.
_ACTIONS = {"mend": 6, "release": 2, "discard": 2}
_LOOKS_EVERY_S = 0.2
_OPTIONS: dict[str, Any] = {
    "sessions": 4,
    "prefetch": 10,
    "accept_s": 2.0,
    "idle_s": 0.1,
    "hold_s": 1.0,
    "renew_s": 1.0,
    "retry_s": 0.02,
    "retry_max_s": 0.1,
    "attempts": 3,
    "released_s": 0.1,
    "claim_s": 3.0,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process.

    Attributes:
        broker: The connection string.
        database: The address of the store.
        chance: The probability with which it dies at each operation of the store.
        edges: The file that gets a line for each death.
        intents: The file that gets the id of each message before it is discarded.
    """

    broker: str
    database: str
    chance: float
    edges: str
    intents: str

    def to_json(self) -> str:
        """Return the settings as an argument."""
        return json.dumps(asdict(self))


async def consume(settings: Settings) -> None:
    """Receive, with a handler that some messages make fail."""
    deadly = Deadly(settings.chance, Path(settings.edges))
    async with open_desk(settings.database) as desk:
        deadly.arm(desk.store)

        async def handle(message: inbox.Message) -> None:
            number = message.sequence or 0
            if number % POISON_EVERY == 0 and not await desk.is_mended(message.id):
                raise inbox.DeadLetter("poison")
            if number % FAILS_EVERY == 0 and not await desk.is_mended(message.id):
                raise OSError("not yet")
            async with desk.store.once(message) as arrival:
                if arrival.first:
                    await desk.effect(arrival, message)
            deadly.maybe("effect, after")

        async with inbox.connect(settings.broker) as client:
            receiver = inbox.Receiver(
                client, handle, queue=QUEUE, on_poison="park", parking=desk.store, **_OPTIONS
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, receiver.stop)
            await receiver.run()


async def operate(settings: Settings) -> None:
    """Mend, release and discard what is parked, until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with open_desk(settings.database) as desk:
        Deadly(settings.chance, Path(settings.edges)).arm(desk.store)
        while not stopping.is_set():
            for key in await desk.store.keys():
                if not key.is_released:
                    await _act(desk, key, Path(settings.intents))
            await asyncio.sleep(_LOOKS_EVERY_S)


async def _act(desk: EffectStore, key: inbox.ParkedKey, intents: Path) -> None:
    action = random.choices(list(_ACTIONS), list(_ACTIONS.values()))[0]
    # Of a key that is not released, nobody but an operator removes the first message.
    first = await desk.store.messages(key.topic, key.key, limit=1)
    if action == "discard":
        with intents.open("a") as file:
            file.writelines(f"{each.id}\n" for each in first)
        await desk.store.discard(key.topic, key.key, first)
    elif action == "mend":
        for each in first:
            await desk.mend(each.id)
    await desk.store.release(key.topic, key.key)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("azure").setLevel(logging.ERROR)
    roles = {"consumer": consume, "operator": operate}
    asyncio.run(roles[sys.argv[1]](Settings(**json.loads(sys.argv[2]))))
