"""The parked keys and orders that this process knows, and those that it stores.

The quarantine is read whenever an attempt is repeated, if a document is invalid, and if another process may have
set an event aside before this one got the lease: the event is old enough, or its source cannot tell. So pages of a
sound feed cost no query, unless they are a backlog. That holds for the first page of a process that reads a change
feed too, which need not wait until the SDK of the quarantine is imported and connected. With `park` it is read at
each attempt, as any event may belong to a key that another process has parked.

A quarantine that cannot be read delays only the pages that depend on it. A page that was attempted before, here
or elsewhere, waits until the quarantine can be read: another process may have set an event of the page aside, and
published the events behind it. A page that nobody has attempted does not wait, as none of its events can be in
quarantine. `park` needs every reading.

An order is removed some minutes after the checkpoint has passed its event. So a page that may have been attempted
before is compared with the checkpoint after the reading: of what was set aside, there is an order, or it has been
passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from relay.config.settings import OnPoison
from relay.core.deadline import within
from relay.core.documents import SourceDocument
from relay.core.errors import QuarantineError, SourceError, first_line
from relay.core.events import Event, EventName, Reason, Received, Rejected
from relay.core.fence import Settled
from relay.core.holds import KEPT_S, NOTHING, Holds, Order
from relay.core.place import version_of
from relay.telemetry.stream import logger_of

if TYPE_CHECKING:
    from relay.core.ports import Quarantine

# Maximum number of events that this process remembers to have set aside, and of invocations to have begun. The
# quarantine remembers all events.
_REMEMBERED = 10_000

# Maximum number of versions of one event among them.
_VERSIONS = 100

# Maximum number of documents of a key that are stored at a time.
_PART = 100

# Seconds after a failed reading during which the latest one counts, where none is needed.
_PAUSE_S = 30.0

# Seconds since its commit, by clocks that agree, before which a sound event cannot have been set aside by another
# process: it takes three attempts, with a pause after each, or an operator.
_UNTRIED_S = 2

# Time limit for one reading of the quarantine, across all of its pages, in seconds.
_READING_S = 20.0

# Time limit for comparing orders with the checkpoint and removing the orders that it has passed, in seconds.
_REMOVING_S = 10.0

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

logger = logger_of(__name__)


class Orders:
    """Parked keys and orders; one for a process."""

    def __init__(self, quarantine: Quarantine, policy: OnPoison, settled: Settled) -> None:
        """Create the orders; `settled` asks the source's checkpoint, as `ports.Source.passed_positions` does."""
        self._quarantine = quarantine
        self._policy = policy
        self._settled = settled
        self._read: Holds | None = None
        self._set_aside: dict[EventName, tuple[Order, ...]] = {}
        # Versions of documents without a name that are stored: nothing else tells the next attempt.
        self._stored: dict[str, bool] = {}
        self._begun: dict[str, bool] = {}
        self._unreadable_until = 0.0

    async def for_attempt(self, received: Received, invocation_id: str, retry_count: int) -> Holds:
        """Return the holds on documents of this batch.

        Raises QuarantineError if it requires a reading that fails.
        """
        is_first = invocation_id not in self._begun
        tried = retry_count > 0 or (is_first and (received.may_be_tried or _is_old_enough(received)))
        # An invalid document may have been set aside elsewhere immediately, and been discarded since.
        may_be_aside = tried or (is_first and bool(received.rejected))
        needed = tried or self._policy is OnPoison.PARK
        if may_be_aside or needed:
            await self._refresh(needed=needed)
        _remember(self._begun, invocation_id, may_be_aside)
        return self._holds_on((*received.events, *received.rejected))

    def may_have_been_tried(self, invocation_id: str) -> bool:
        """Return True if an attempt may have come before the one that `for_attempt` was for.

        It may have been elsewhere.
        """
        return self._begun.get(invocation_id, True)

    async def reread(self, received: Received) -> Holds:
        """Return the holds on documents of this batch by another reading, after the first one.

        Raises QuarantineError.
        """
        async with within(_READING_S, QuarantineError, "reading parked keys again"):
            found = await self._quarantine.holds()
        before = self._read or NOTHING
        # Of events that were not passed yet, another process may have removed the orders meanwhile.
        self._read = Holds(found.parked, {**before.orders, **found.orders})
        return self._holds_on((*received.events, *received.rejected))

    async def store(self, rejected: Sequence[Rejected], invocation_id: str, check: Callable[[], None]) -> None:
        """Quarantine the documents that are set aside, and remember them. Raises QuarantineError.

        Part by part, so that an attempt that is cut off here leaves less to the next one. `check` is called before
        each write, and raises if the comparison with the checkpoint no longer counts.
        """
        check()
        # The answer may be lost: what may be stored must not be published by the next attempt. What is parked with
        # its key waits for the next attempt's look at that.
        self._note([item for item in rejected if item.reason is not Reason.KEY_PARKED], carried_out=False)
        for part in _parts(
            [item for item in rejected if item.name is not None or _version(item) not in self._stored]
        ):
            await self._quarantine.store(part, invocation_id, park=self._policy is OnPoison.PARK, check=check)
            self._note(part, carried_out=True)

    def _note(self, rejected: Sequence[Rejected], *, carried_out: bool) -> None:
        for item in rejected:
            if item.name is None:
                if carried_out:
                    _remember(self._stored, _version(item), True)
            else:
                order = Order.to_store(item, carried_out=carried_out)
                # A page may have several versions of an event.
                others = (each for each in self._set_aside.get(item.name, ()) if each.place != order.place)
                _remember(self._set_aside, item.name, (order, *others)[:_VERSIONS])

    def _holds_on(self, documents: Sequence[Event | Rejected]) -> Holds:
        read = self._read or NOTHING
        known = [orders for orders in (self._set_aside, read.orders) if orders]
        if not (known or read.parked):
            return NOTHING
        names = [name for each in documents if (name := each.name) is not None]
        return Holds(
            {key: read.parked[key] for key, _ in names if key in read.parked},
            {
                name: found
                for name in names
                if (found := [order for orders in known for order in orders.get(name, ())])
            },
        )

    async def _refresh(self, *, needed: bool) -> None:
        if not needed and time.monotonic() < self._unreadable_until:
            return
        try:
            async with within(_READING_S, QuarantineError, "reading parked keys and orders"):
                found = await self._quarantine.holds()
        except QuarantineError as error:
            self._unreadable_until = time.monotonic() + _PAUSE_S
            if needed:
                raise
            logger.warning(
                "the orders in the quarantine could not be read, so the latest reading counts for %g s: %s",
                _PAUSE_S,
                first_line(error),
                extra={"action": "relay_orders_unavailable"},
            )
            return
        kept = await self._without_removed(found)
        # Pages of leases that overlap are attempted at the same time: one may have parked a key meanwhile.
        self._read = Holds({**self._quarantine.parked_here(), **kept.parked}, kept.orders)

    async def _without_removed(self, found: Holds) -> Holds:
        """Note which orders' events the checkpoint has passed, and remove those of which that is long known."""
        carried_out = {
            name: order
            for name, orders in found.orders.items()
            for order in orders
            if order.carried_out and order.place is not None
        }
        compared = {name: order for name, order in carried_out.items() if order.passed_at is None}
        now = time.time()
        over = {
            name: order
            for name, order in carried_out.items()
            if order.passed_at is not None and now > order.passed_at + KEPT_S
        }
        try:
            async with within(_REMOVING_S, QuarantineError, "removing orders that the checkpoint has passed"):
                if over:
                    await self._quarantine.remove(over)
                if compared:
                    passed = await self._passed(compared)
                    if passed:
                        await self._quarantine.note_passed(passed, now)
        except (SourceError, QuarantineError) as error:
            # The orders remain in force; a later attempt removes them.
            logger.debug("orders that are carried out stay: %s", first_line(error))
            return found
        return Holds(found.parked, {name: orders for name, orders in found.orders.items() if name not in over})

    async def _passed(self, orders: Mapping[EventName, Order]) -> dict[EventName, Order]:
        """Return the orders whose events the checkpoint has passed. Raises SourceError."""
        items = [
            Rejected(SourceDocument({}, {"partitionKey": key}, order.place), Reason.SET_ASIDE, "", position, key)
            for position, ((key, _), order) in enumerate(orders.items())
        ]
        passed = await self._settled(items)
        return {name: order for number, (name, order) in enumerate(orders.items()) if number in passed}


def _is_old_enough(received: Received) -> bool:
    """Return True if another process may have attempted these events, and set one of them aside."""
    if not received.events:
        return False
    # The first was committed first.
    return (received.events[0].committed_at or 0) <= time.time() - _UNTRIED_S


def _version(item: Rejected) -> str:
    """Return what tells a document from its other versions, and a row from equal ones."""
    document = item.document
    return version_of(document.stored) if document.placed is None else str(document.place)


def _parts(rejected: Sequence[Rejected]) -> Iterator[list[Rejected]]:
    """Yield the documents by partition key, each key's in their order.

    Each part has as many as are stored together.
    """
    by_key: dict[str | None, list[Rejected]] = {}
    for item in rejected:
        by_key.setdefault(item.partition_key, []).append(item)
    for of_key in by_key.values():
        for start in range(0, len(of_key), _PART):
            yield of_key[start : start + _PART]


def _remember(known: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
    known[key] = value
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
