"""One instance as a queue: leases that hand over pages, senders that carry one send at a time, one processor.

What is simulated is what `relay` and the trigger do: a lease reads a page, its partition keys queue for the
senders, each key's batches go out one after another, and the lease reads on when all of the page was accepted.
Each send occupies the processor for what it costs and then waits for its round trip without occupying anything.
Times are seconds.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Costs:
    """What the steps take, in seconds; measured on one machine, and only good for one of its kind.

    Attributes:
        send: Processor time of sending a batch, the relay's and the SDK's, however many events it carries.
        event: Processor time of an event in a batch: checked, encoded, put into it, remembered.
        byte: Processor time of each byte of an event's document.
        single: Processor time of an event that is its key's only one, and is sent without a batch.
        wire: What a send takes beside the round trip and the processor: sockets, timers.
        wake: What a processor that had nothing to do takes more for the first thing it then does: caches are cold.
        broker_send, broker_event, broker_byte, broker_single, broker_wake: The local broker's processor time;
            nothing on Azure.
        document: Processor time of decoding one document of the trigger, of any type.
        page: What reading a page and writing its checkpoint take beside the processor.
        page_processor, page_document: Processor time of the host for a page, and for each document in it, where
            the host runs in the relay's process, as the local one does.
    """

    send: float
    event: float
    byte: float
    single: float
    wire: float
    wake: float = 0.0
    broker_send: float = 0.0
    broker_event: float = 0.0
    broker_byte: float = 0.0
    broker_single: float = 0.0
    broker_wake: float = 0.0
    document: float = 0.0
    page: float = 0.0
    page_processor: float = 0.0
    page_document: float = 0.0

    def sending(self, events: int, size: int, *, alone: bool) -> float:
        """Processor time of one send: a message alone, or a batch of so many events of that size."""
        return self.single + size * self.byte if alone else self.send + events * (self.event + size * self.byte)

    def taking(self, events: int, size: int, *, alone: bool) -> float:
        """The broker's processor time for it."""
        if alone:
            return self.broker_single + size * self.broker_byte
        return self.broker_send + events * (self.broker_event + size * self.broker_byte)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a page of the change feed holds.

    Attributes:
        keys: Partition keys in it.
        per_key: Events of each.
        size: Bytes of a document.
        others: Documents of other types for each event.
        batch_bytes: What a batch may hold.
    """

    keys: int
    per_key: int
    size: int
    others: float = 0.0
    batch_bytes: int = 256 * 1024

    @property
    def events(self) -> int:
        return self.keys * self.per_key

    @property
    def documents(self) -> float:
        return self.events * (1 + self.others)

    @property
    def per_send(self) -> int:
        """Events that one batch holds, where a key has as many."""
        return max(1, self.batch_bytes // (self.size + MESSAGE_OVERHEAD))

    def sends(self) -> list[int]:
        """The events of one key, batch by batch."""
        full, rest = divmod(self.per_key, self.per_send)
        return [self.per_send] * full + ([rest] if rest else [])

    def processor(self, costs: Costs) -> float:
        """Seconds of processor for each event, the sends it shares and the documents beside it included."""
        sending = sum(costs.sending(events, self.size, alone=self.per_key == 1) for events in self.sends())
        decoding = (1 + self.others) * (costs.document + costs.page_document)
        return sending / self.per_key + decoding


MESSAGE_OVERHEAD = 60
"""A message is larger than its document by about this much: properties are added, `ttl` and names left out."""

_SETTLING_PAUSES = 3


@dataclass(frozen=True, slots=True)
class Instance:
    """A process that relays.

    Attributes:
        leases: Physical partitions whose lease it owns.
        senders: RELAY_SENDERS.
        round_trip: From a send to its acknowledgement, in seconds.
        poll_delay: RELAY_POLL_DELAY_MS, in seconds.
    """

    leases: int
    senders: int
    round_trip: float
    poll_delay: float = 0.5


@dataclass(frozen=True, slots=True)
class _Key:
    """A partition key's turn: the events of each batch, and whom to tell when the last one was accepted."""

    sends: list[int]
    done: Callable[[float], None]


class _Page:
    """Counts a page's keys down; `then` once all of them are through."""

    def __init__(self, keys: int, then: Callable[[float], None]) -> None:
        self._left = keys
        self._then = then

    def key_done(self, moment: float) -> None:
        self._left -= 1
        if not self._left:
            self._then(moment)


class _Server:
    """Serves one at a time, in the order of asking; after a rest, `wake` longer."""

    def __init__(self, wake: float) -> None:
        self._wake = wake
        self._free = 0.0

    def serve(self, at: float, takes: float) -> float:
        """When that is done."""
        rested = at > self._free
        self._free = max(at, self._free) + takes + (self._wake if rested else 0.0)
        return self._free


class Flow:
    """The simulation of one instance."""

    def __init__(self, instance: Instance, costs: Costs, size: int) -> None:
        self._instance = instance
        self._costs = costs
        self._size = size
        self._processor = _Server(costs.wake)
        self._broker = _Server(costs.broker_wake)
        self._idle = instance.senders
        self._waiting: deque[_Key] = deque()
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._serial = count()

    def at(self, moment: float, do: Callable[[float], None]) -> None:
        """Have something happen then."""
        heapq.heappush(self._agenda, (moment, next(self._serial), do))

    def steps(self) -> Iterator[float]:
        """Let things happen, one after another; yields when each did."""
        while self._agenda:
            moment, _, do = heapq.heappop(self._agenda)
            do(moment)
            yield moment

    def page_read(self, now: float, documents: float, then: Callable[[float], None]) -> None:
        """Read a page and write its checkpoint, decode it, and go on."""
        costs = self._costs
        work = costs.page_processor + documents * (costs.page_document + costs.document)
        self.at(now + costs.page, lambda moment: self.at(self._processor.serve(moment, work), then))

    def publish(self, now: float, keys: list[_Key]) -> None:
        """Send the keys' batches, as senders become free."""
        self._waiting.extend(keys)
        self._lend(now)

    def _lend(self, now: float) -> None:
        while self._idle and self._waiting:
            self._idle -= 1
            self._send(now, self._waiting.popleft(), 0)

    def _send(self, now: float, key: _Key, number: int) -> None:
        costs, events, alone = self._costs, key.sends[number], key.sends == [1]
        sent = self._processor.serve(now, costs.sending(events, self._size, alone=alone))

        def arrive(moment: float) -> None:
            taken = self._broker.serve(moment, costs.taking(events, self._size, alone=alone))
            self.at(taken + self._instance.round_trip + costs.wire, accepted)

        def accepted(moment: float) -> None:
            if number + 1 < len(key.sends):
                self._send(moment, key, number + 1)
                return
            self._idle += 1
            self._lend(moment)
            key.done(moment)

        self.at(sent, arrive)


def throughput(instance: Instance, shape: Shape, costs: Costs, *, pages: int = 24) -> float:
    """Events a second that one instance relays out of a backlog, every lease's pages full."""
    flow = Flow(instance, costs, shape.size)
    sends = shape.sends()
    finished: list[float] = []

    def read(now: float) -> None:
        flow.page_read(now, shape.documents, publish)

    def publish(now: float) -> None:
        page = _Page(shape.keys, complete)
        flow.publish(now, [_Key(sends, page.key_done)] * shape.keys)

    def complete(now: float) -> None:
        finished.append(now)
        read(now)

    for _ in range(instance.leases):
        read(0.0)
    wanted = pages * instance.leases
    for _ in flow.steps():
        if len(finished) >= wanted:
            break
    first = wanted // 4
    return (len(finished) - 1 - first) * shape.events / (finished[-1] - finished[first])


def latencies(
    instance: Instance, rate: float, costs: Costs, *, size: int, others: float, seconds: float, seed: int
) -> list[float]:
    """Sorted latencies of events that arrive at random, `rate` a second on this instance, each of its own key.

    A lease reads on at once after a page, and pauses after a poll that found nothing, as the trigger does. Each
    begins with such a pause, so what arrives within the first few of them is not counted.
    """
    settled = _SETTLING_PAUSES * instance.poll_delay
    flow, rng = Flow(instance, costs, size), random.Random(seed)
    found: list[float] = []

    def poll(now: float, coming: deque[float]) -> None:
        page = []
        while coming and coming[0] <= now:
            page.append(coming.popleft())
        if page:
            flow.page_read(now, len(page) * (1 + others), lambda moment: send(moment, page, coming))
        elif coming:
            flow.page_read(now, 0, lambda moment: pause(moment, coming))

    def pause(now: float, coming: deque[float]) -> None:
        flow.at(now + instance.poll_delay, lambda moment: poll(moment, coming))

    def send(now: float, arrived: list[float], coming: deque[float]) -> None:
        page = _Page(len(arrived), lambda moment: poll(moment, coming))

        def key(since: float) -> _Key:
            def done(moment: float) -> None:
                if since >= settled:
                    found.append(moment - since)
                page.key_done(moment)

            return _Key([1], done)

        flow.publish(now, [key(since) for since in arrived])

    for _ in range(instance.leases):
        coming, moment = deque[float](), 0.0
        while (moment := moment + rng.expovariate(rate / instance.leases)) < settled + seconds:
            coming.append(moment)
        pause(-rng.random() * instance.poll_delay, coming)
    for _ in flow.steps():
        pass
    return sorted(found)
