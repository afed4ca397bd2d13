"""A writer's process: a service that creates, changes and deletes orders with `outbox`, as documented."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from outbox_relay.outbox import DomainEntity, DomainEvent, UnitOfWork
from outbox_relay.outbox.errors import (
    CommitUncertain,
    Conflict,
    NotFound,
    OutboxError,
    PreconditionFailed,
    ServiceRefused,
    Throttled,
)
from verification.simulation.world import World
from verification.simulation.writing.promises import Promise, Promises, Told
from verification.simulation.writing.sdk import SimulatedContainer


@dataclass(frozen=True)
class OrderPlaced(DomainEvent):
    stamp: str


@dataclass(frozen=True)
class OrderChanged(DomainEvent):
    stamp: str
    line: int


class OrderWithdrawn(DomainEvent):
    pass


@dataclass
class Order(DomainEntity):
    """An order.

    Attributes:
        stamp: Names the commit that has written this version.
        basis: The stamp of the version that it was read in; None for a new one, or if any version may be replaced.
    """

    stamp: str
    basis: str | None = None

    def created_event(self) -> OrderPlaced:
        return OrderPlaced(self.stamp)

    def deleted_event(self) -> OrderWithdrawn:
        return OrderWithdrawn()

    def change(self, stamp: str, basis: str | None, events: int) -> None:
        """Become another version, with some events."""
        self.stamp, self.basis = stamp, basis
        for line in range(events):
            self.add_event(OrderChanged(stamp, line))


_KEYS, _ORDERS = 6, 3

# Attempts of a commit whose outcome is unknown.
_ATTEMPTS = 4
_PAUSE_S = (0.05, 2.0)
_BETWEEN_S = (0.1, 6.0)
_NOTHING = "Nothing of this commit was written"
_CHANGED = "it was changed since"


class Writer:
    """One process of the service; `is_over` says when it has enough."""

    def __init__(self, world: World, container: SimulatedContainer, promises: Promises, process: str) -> None:
        self.process = world.process(process)
        self.is_over = False
        self._entropy = world.entropy
        self._promises = promises
        self._container = container
        self._commits = 0
        self.process.start(self._run())

    async def _run(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self._entropy.uniform(*_BETWEEN_S))
            # A service that gets no order, or only an older one, answers its own client with an error.
            try:
                await self._request()
            except OutboxError:
                continue

    async def _request(self) -> None:
        key = f"key-{self._entropy.randrange(_KEYS)}"
        identifier = f"{key}-order-{self._entropy.randrange(_ORDERS)}"
        self._commits += 1
        stamp = f"{self.process.name}/{self._commits}"
        async with UnitOfWork(self._container) as work:  # type: ignore[arg-type]  # what outbox takes of it
            promise = await self._change(work, key, identifier, stamp)
            await self._commit(work, promise)
        if promise.told is Told.COMMITTED and self._container.keeps_tokens and self._entropy.random() < 0.3:
            await self._read_again(key, identifier, stamp)

    async def _change(self, work: UnitOfWork, key: str, identifier: str, stamp: str) -> Promise:
        orders, draw = work.repository(Order), self._entropy.random()
        events = self._entropy.choice((0, 1, 1, 2, 3))
        try:
            order = await orders.read(identifier, partition_key=key)
        except NotFound:
            orders.create(Order(stamp, id=identifier, partition_key=key))
            return self._promises.begin(stamp, 1, overwrites=False)
        if draw < 0.05:
            order.change(stamp, order.stamp, 0)
            orders.delete(order)
            return self._promises.begin(stamp, 0, overwrites=False)
        overwrites = draw < 0.3
        order.change(stamp, None if overwrites else order.stamp, events)
        orders.update(order, if_match="*" if overwrites else None)
        return self._promises.begin(stamp, events, overwrites=overwrites)

    async def _commit(self, work: UnitOfWork, promise: Promise) -> None:
        for is_repeated in range(_ATTEMPTS):
            try:
                await work.commit()
            except (CommitUncertain, Throttled):
                await asyncio.sleep(self._entropy.uniform(*_PAUSE_S))
            except PreconditionFailed as error:
                promise.told = Told.NOTHING if _NOTHING in str(error) else Told.UNKNOWN
                if _CHANGED in str(error):
                    self._promises.wrong.append(f"{promise.stamp} was refused as changed, and was not")
                return
            except Conflict:
                promise.told = Told.NOTHING
                return
            except NotFound:
                # Of the order. An earlier attempt may have been applied, which only its events would tell.
                promise.told = Told.NOTHING if promise.events else Told.UNKNOWN
                return
            except ServiceRefused:
                # The refused request wrote nothing; of an earlier one it does not speak.
                promise.told = Told.UNKNOWN if is_repeated else Told.NOTHING
                return
            else:
                promise.told = Told.COMMITTED
                return

    async def _read_again(self, key: str, identifier: str, stamp: str) -> None:
        async with UnitOfWork(self._container) as work:  # type: ignore[arg-type]
            order = await work.repository(Order).read(identifier, partition_key=key, include_deleted=True)
        self._promises.saw(self.process.name, key, identifier, stamp, order.stamp)
