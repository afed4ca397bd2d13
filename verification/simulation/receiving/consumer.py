"""A consumer's process: the receiver of `inbox` as services run it, with a handler that may be slow, or fail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection
from functools import partial
from typing import Any

from outbox_relay import inbox
from verification.simulation.channel import RpcChannel
from verification.simulation.receiving.ledgers import Desk, Effect, Ledger
from verification.simulation.receiving.sdk import SimulatedClient
from verification.simulation.receiving.subscription import Subscription
from verification.simulation.receiving.watch import Watch
from verification.simulation.world import Process, World

TOPIC = "domain-events"
REASON = "unknown-order"

Name = tuple[str, str]
"""The key and the id of an event."""

LOCK_S, RENEW_S, ANSWER_S = 30.0, 8.0, 6.0
_OPTIONS: dict[str, Any] = {
    "sessions": 4,
    "prefetch": 10,
    "accept_s": 20.0,
    "idle_s": 0.2,
    "hold_s": 10.0,
    "renew_s": RENEW_S,
    "retry_s": 1.0,
    "retry_max_s": 30.0,
    "answer_s": ANSWER_S,
    "grace_s": 10.0,
}
# How a consumer parks keys.
_PARKING: dict[str, Any] = {"on_poison": "park", "attempts": 3, "released_s": 3.0, "claim_s": LOCK_S}

# Shares of messages whose handler takes longer than the lock lasts before its block of `once`, and within it,
# fails before its effect, and fails after it.
_SLOW, _SLOW_WITHIN, _FAILS, _FAILS_LATE = 0.02, 0.005, 0.03, 0.03
_SLOW_S = (LOCK_S, 3 * LOCK_S)
_OPEN_AGAIN_S = 1.0


class HandlerError(Exception):
    """The handler has failed: not now."""


class Consumer:
    """One process of a consumer, which cannot handle the messages of `poison`.

    Attributes:
        name: The consumer's: whoever is to have each effect once.
    """

    def __init__(
        self,
        world: World,
        line: RpcChannel,
        subscription: Subscription,
        ledger: Ledger,
        watch: Watch,
        process: str,
        poison: Collection[Name],
    ) -> None:
        self.name = subscription.name
        self.process: Process = world.process(process)
        self._line = line
        self._subscription = subscription
        self._ledger = ledger
        self._watch = watch
        self._poison = poison
        self._receiver: inbox.Receiver | None = None
        self.process.start(self._run())

    def stop(self) -> None:
        """Ask the receiver to stop, as at SIGTERM; the process ends when it has."""
        if self._receiver is not None:
            self._receiver.stop()

    async def _run(self) -> None:
        desk = await self._open()
        self._receiver = inbox.Receiver(
            SimulatedClient(self.process, self._line, self._subscription),  # type: ignore[arg-type]
            partial(self._handle, desk),
            topic=TOPIC,
            subscription=self.name,
            **_OPTIONS,
            **({} if desk.parking is None else {**_PARKING, "parking": desk.parking}),
        )
        await self._receiver.run()
        self.process.world.outside.after(0.0, self._end)

    def _end(self) -> None:
        if self.process.is_alive:
            self.process.kill()

    async def _open(self) -> Desk:
        while True:
            try:
                return self._ledger.open(self.process)
            except sqlite3.OperationalError:  # another process is in a transaction
                await asyncio.sleep(_OPEN_AGAIN_S)

    async def _handle(self, desk: Desk, message: inbox.Message) -> None:
        with self._watch.handling(self.process, self.name, message.key):
            entropy = self.process.world.entropy
            await asyncio.sleep(self._takes_s(0.05, _SLOW))
            if (message.key, message.id) in self._poison:
                raise inbox.DeadLetter(REASON)
            if entropy.random() < _FAILS:
                raise HandlerError
            effect = _effect(message)
            async with desk.store.once(message, entity=effect.entity) as arrival:
                self._watch.arrived(self.name, effect, arrival)
                if arrival.first:
                    await asyncio.sleep(self._takes_s(0.01, _SLOW_WITHIN))
                    desk.add(effect)
                    if desk.rolls_back:
                        await asyncio.sleep(entropy.uniform(0.0, 0.01))
                        if entropy.random() < _FAILS_LATE:
                            raise HandlerError
            self._watch.look(self.name, self._ledger)

    def _takes_s(self, usual_s: float, slow: float) -> float:
        """Return the seconds that something takes: a share of it is longer than the lock lasts."""
        entropy = self.process.world.entropy
        return entropy.uniform(*_SLOW_S) if entropy.random() < slow else entropy.uniform(0.0, usual_s)


def _effect(message: inbox.Message) -> Effect:
    data: Any = message.json()
    return Effect(
        message.id,
        message.key,
        data.get("orderId", message.key),
        message.sequence,
        message.body.decode(),
        message.action,
        message.sequence_number,
    )
