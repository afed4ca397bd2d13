"""Releases parked keys: in order, to the last record, and only then the key itself."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import takewhile

from relay.cli.ordered import OrderedSender
from relay.cli.quarantine.records import Filter, Head, Records
from relay.cli.quarantine.release import CHUNK, Kept, Release, load, repeated
from relay.events import Event, EventName, Reason

# While the key is parked the relay goes on storing its new events. A release that does not catch up ends here.
_ROUNDS = 50


class ParkedRelease:
    """Releases the records of parked keys, and tells in a `Release` what became of them."""

    def __init__(self, records: Records, sender: OrderedSender, event_type: str, outcome: Release) -> None:
        self._records = records
        self._sender = sender
        self._event_type = event_type
        self._outcome = outcome
        self._sent: set[EventName] = set()

    async def release(self, partition_key: str, chosen: Set[str] | None) -> None:
        """Publish a parked key's records in order, and remove each once it was accepted.

        A record that is still not fit to be sent holds up those behind it, and so does one that is not chosen.
        The key goes on by itself once no record is left.

        Args:
            partition_key: The key.
            chosen: The ids of the records to release; None for all, those that come meanwhile included.

        Raises:
            ServiceError: The quarantine container cannot be read or written.
        """
        outcome = self._outcome
        done: set[str] = set()
        for _ in range(_ROUNDS):
            heads = await self._left(partition_key, done)
            ready = heads if chosen is None else list(takewhile(lambda head: head.id in chosen, heads))
            went = await self._release_in_order(ready)
            done |= {head.id for head in went}
            if len(went) == len(ready) and await self._records.holdings.unpark(partition_key):
                outcome.unparked.append(partition_key)
                return
            if len(went) < len(ready) or chosen is not None:
                break
        left = await self._left(partition_key, done)
        told = {kept.head.id for kept in outcome.kept} | {head.id for head in outcome.untried}
        outcome.kept += [
            Kept(head, str(Reason.KEY_PARKED), "an earlier record of its parked key comes first")
            for head in left
            if chosen is not None and head.id in chosen and head.id not in told
        ]
        outcome.parked[partition_key] = len(left)

    async def _left(self, partition_key: str, done: Set[str]) -> list[Head]:
        # A replica may be behind with what was just removed.
        heads = await self._records.heads(Filter(partition_key=partition_key))
        return [head for head in heads if head.id not in done]

    async def _release_in_order(self, heads: Sequence[Head]) -> list[Head]:
        """Returns those that are in quarantine no more: all, or those before the first that stays."""
        went: list[Head] = []
        for start in range(0, len(heads), CHUNK):
            chunk = heads[start : start + CHUNK]
            its_part = await self._release_chunk(chunk)
            went += its_part
            if len(its_part) < len(chunk):
                break
        return went

    async def _release_chunk(self, heads: Sequence[Head]) -> list[Head]:
        went: list[Head] = []
        loaded: list[tuple[Head, Event]] = []
        for head in heads:
            kept, gone = len(self._outcome.kept), len(self._outcome.gone)
            event = await load(self._records, head, self._event_type, self._outcome)
            if event is not None and event.name in self._sent:
                self._outcome.kept.append(repeated(head))
            elif event is not None:
                self._sent.add(event.name)
                loaded.append((head, event))
            if len(self._outcome.gone) > gone:
                went.append(head)
            if len(self._outcome.kept) > kept:
                break
        return went + await self._publish(loaded)

    async def _publish(self, loaded: Sequence[tuple[Head, Event]]) -> list[Head]:
        sent = await self._sender.send([event for _, event in loaded], stop_at_rejection=True)
        refused = {rejected.position: rejected for rejected in sent.rejected}
        accepted = {event.position for event in sent.accepted}
        went = []
        for position, (head, event) in enumerate(loaded):
            if position in accepted:
                await self._records.remove(head)
                self._outcome.released.append(head)
                went.append(head)
            elif (rejected := refused.get(position)) is not None:
                self._outcome.kept.append(Kept(head, str(rejected.reason), rejected.detail))
            elif event.partition_key in self._sender.failures:
                self._outcome.untried.append(head)
        return went
