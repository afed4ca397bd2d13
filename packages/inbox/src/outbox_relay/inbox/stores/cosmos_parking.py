"""Parks keys in a container of Cosmos DB: a marker and a document for each message, in the partition of the key.

Each change is one transactional batch that writes the marker, which counts the messages. So a message that is set
aside and the removal of the last one exclude each other, whatever a read from a lagging replica has missed.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from outbox_relay.inbox.errors import NotStorable
from outbox_relay.inbox.parking import (
    ONLY_PLACE,
    Cause,
    Claim,
    ClaimLost,
    Kept,
    NotReleased,
    ParkedKey,
    ParkedMessage,
    decode,
    encode,
    position_among,
    time_text,
)
from outbox_relay.inbox.stores.port import Identity

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

MARKER, PARKED = "inboxParkedKey", "inboxParked"
"""The property `type` of the documents."""

_MISSING, _EXISTS, _CHANGED, _TOO_LARGE = 404, 409, 412, 413
# Of messages that are discarded in one batch, each takes two operations.
_AT_ONCE = 40
_TRIES, _AGAIN_S = 50, 0.01
# Messages of a key that have the same number: one for each subscription, and for each time that it was made anew.
_TWINS = 1000
_WITHOUT_MESSAGE = (
    "c.topic, c.key, c.number, c.messageId, c.attempts, c.subscription, c.enqueuedAt,"
    " IS_NULL(c.message) AS isPlace"
)

_Operation: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]
_Document: TypeAlias = dict[str, Any]


class _Refused(Exception):
    """A batch was refused: the number of the operation, and its status."""

    def __init__(self, index: int, status: int) -> None:
        self.index = index
        self.status = status


class CosmosParking(ABC):
    """The part of `CosmosStore` that parks keys. See `Parking`.

    The clock of claims is the processes'.
    """

    _container: ContainerProxy
    _consumer: str

    @abstractmethod
    def _identifier(self, kind: str, *parts: str) -> str:
        """Return the id of a document of the consumer."""

    @abstractmethod
    async def _note(self, event: Identity, partition: str) -> _Document:
        """Return the document that records that a message was handled."""

    @abstractmethod
    async def _placed(self, document: _Document, partition: str) -> _Document:
        """Return a document with the property of the partition key, and that never expires unless it says so."""

    @abstractmethod
    async def _read(self, identifier: str, partition: str) -> _Document | None:
        """Return a document, or None if it does not exist."""

    @abstractmethod
    def _keep_session_token(self, headers: Mapping[str, Any]) -> None:
        """Let later reads see the state in an answer."""

    async def is_parked(self, topic: str, key: str) -> bool:
        """See `Parking.is_parked`. A write, because a read may come from a replica that lags."""
        try:
            await self._batch(key, [_counted(self._marker_id(topic, key), 0)])
        except _Refused as refused:
            if refused.status == _MISSING:
                return False
            raise
        return True

    async def park(self, message: ParkedMessage, cause: Cause) -> Kept:
        """See `Parking.park`."""
        marker = await self._placed(self._new_marker(message.topic, message.key, cause), message.key)
        for _ in range(_TRIES):
            kept = await self._add(replace(message, position=1), ("create", (marker,), {}))
            if kept is None:
                kept = await self.set_aside(message)
            if kept is not Kept.NOT_PARKED:
                return kept
        raise LookupError("Others park and release the key all the time.")

    async def set_aside(self, message: ParkedMessage) -> Kept:
        """See `Parking.set_aside`."""
        for _ in range(_TRIES):
            marker = await self._read(self._marker_id(message.topic, message.key), message.key)
            if marker is not None:
                kept = await self._add_behind(message, marker)
                if kept is not None:
                    return kept
            elif not await self.is_parked(message.topic, message.key):
                return Kept.NOT_PARKED
            await asyncio.sleep(_AGAIN_S)
        raise LookupError("Others change the messages of the key all the time.")

    async def claim(self, topic: str, lasts: timedelta) -> Claim | None:
        """See `Parking.claim`. It queries all partitions."""
        query = (
            "SELECT * FROM c WHERE c.type = @type AND c.consumer = @consumer AND c.topic = @topic"
            " AND c.released AND c.until <= @now"
        )
        values = {"@type": MARKER, "@consumer": self._consumer, "@topic": topic, "@now": time.time()}
        found = self._container.query_items(query, parameters=_parameters(values))
        async for marker in found:
            token = uuid4().hex
            taken = {**marker, "token": token, "until": time.time() + lasts.total_seconds()}
            try:
                await self._batch(marker["key"], [_replaced(marker, taken)])
            except _Refused:
                continue  # another process has claimed it meanwhile
            return Claim(topic, marker["key"], token)
        return None

    async def renew(self, claim: Claim, lasts: timedelta) -> bool:
        """See `Parking.renew`."""
        changes = [{"op": "set", "path": "/until", "value": time.time() + lasts.total_seconds()}]
        condition = {"filter_predicate": f"from c where c.token = '{claim.token}'"}
        try:
            await self._batch(
                claim.key, [("patch", (self._marker_id(claim.topic, claim.key), changes), condition)]
            )
        except _Refused as refused:
            if refused.status in (_MISSING, _CHANGED):
                return False
            raise
        return True

    async def next(self, claim: Claim, done: ParkedMessage | None = None) -> ParkedMessage | None:
        """See `Parking.next`."""
        for _ in range(_TRIES):
            marker, removal = await self._claimed(claim, done)
            left = marker["messages"] - len(removal)
            if not left:
                if await self._tried(claim.key, [_deleted(marker), *removal]):
                    return None
                continue
            records = await self._records(claim.topic, claim.key, None, 2)
            gone = () if done is None else self._ids(done)
            first = next((each for each in records if each["id"] not in gone), None)
            if first is not None:
                attempt = {"op": "incr", "path": "/attempts", "value": 1}
                counted = [_replaced(marker, {**marker, "messages": left}), *removal]
                if await self._tried(claim.key, [*counted, ("patch", (first["id"], [attempt]), {})]):
                    return self._parked({**first, "attempts": first["attempts"] + 1})
            await asyncio.sleep(_AGAIN_S)
        raise LookupError("Others change the messages of the key all the time.")

    async def give_back(self, claim: Claim, done: ParkedMessage | None = None) -> None:
        """See `Parking.give_back`."""
        for _ in range(_TRIES):
            marker, removal = await self._claimed(claim, done)
            left = marker["messages"] - len(removal)
            free = _replaced(marker, {**marker, "messages": left, "token": "", "until": 0})
            if await self._tried(claim.key, [free if left else _deleted(marker), *removal]):
                return
        raise LookupError("Others change the messages of the key all the time.")

    async def fail(self, claim: Claim, cause: Cause) -> None:
        """See `Parking.fail`."""
        for _ in range(_TRIES):
            marker, _removal = await self._claimed(claim, None)
            again = {**marker, **self._new_marker(claim.topic, claim.key, cause), "messages": marker["messages"]}
            if await self._tried(claim.key, [_replaced(marker, again)]):
                return
        raise LookupError("Others change the messages of the key all the time.")

    async def keys(self) -> list[ParkedKey]:
        """See `Parking.keys`. It queries all partitions."""
        query = "SELECT * FROM c WHERE c.type = @type AND c.consumer = @consumer"
        found = self._container.query_items(
            query, parameters=_parameters({"@type": MARKER, "@consumer": self._consumer})
        )
        keys = [
            ParkedKey(
                each["topic"],
                each["key"],
                datetime.fromisoformat(each["since"]),
                Cause(each["reason"], each["error"], each["detail"]),
                each["messages"],
                each["released"],
            )
            async for each in found
        ]
        return sorted(keys, key=lambda each: (each.topic, each.key))

    async def messages(
        self, topic: str, key: str, *, after: ParkedMessage | None = None, limit: int = 1000
    ) -> list[ParkedMessage]:
        """See `Parking.messages`."""
        return [self._parked(each) for each in await self._records(topic, key, after, limit)]

    async def release(self, topic: str, key: str) -> bool:
        """See `Parking.release`."""
        for _ in range(_TRIES):
            marker = await self._read(self._marker_id(topic, key), key)
            if marker is None:
                return False
            records = await self._records(topic, key, None, _AT_ONCE)
            if records and records[0]["message"] is None:
                raise NotReleased(self._parked(records[0]))
            if marker["released"]:
                return True
            # Only those that were handed over have attempts, and they are the first.
            anew: list[_Operation] = [
                ("patch", (each["id"], [{"op": "set", "path": "/attempts", "value": 0}]), {})
                for each in records
                if each["attempts"]
            ]
            if await self._tried(key, [_replaced(marker, {**marker, "released": True}), *anew]):
                return True
        raise LookupError("Others change the messages of the key all the time.")

    async def discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> Sequence[ParkedMessage]:
        """See `Parking.discard`."""
        discarded: list[ParkedMessage] = []
        for start in range(0, len(messages), _AT_ONCE):
            discarded += await self._discard(topic, key, messages[start : start + _AT_ONCE])
        return discarded

    async def has_records(self) -> bool:
        """Return True if the consumer has handled or parked anything that is recorded."""
        query = "SELECT TOP 1 c.id FROM c WHERE STARTSWITH(c.type, 'inbox') AND c.consumer = @consumer"
        found = self._container.query_items(query, parameters=_parameters({"@consumer": self._consumer}))
        return bool([each async for each in found])

    # Parts.

    async def _discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> list[ParkedMessage]:
        """Remove messages that fit into one batch."""
        for _ in range(_TRIES):
            marker = await self._read(self._marker_id(topic, key), key)
            if marker is None:
                return []
            records = [found for each in messages if (found := await self._record_of(each)) is not None]
            if not records:
                return []
            notes = [
                await self._note(Identity(topic, key, each["messageId"]), key)
                for each in records
                if each["messageId"]
            ]
            left = marker["messages"] - len(records)
            operations = [
                _replaced(marker, {**marker, "messages": left}) if left else _deleted(marker),
                *(("upsert", (each,), {}) for each in notes),
                *(("delete", (each["id"],), {}) for each in records),
            ]
            if await self._tried(key, operations):
                return [self._parked(each) for each in records]
        raise LookupError("Others change the messages of the key all the time.")

    async def _record_of(self, message: ParkedMessage) -> _Document | None:
        """Return the document from which a message was read, or None if it is gone."""
        for each in self._ids(message):
            record = await self._read(each, message.key)
            if record is not None and message.is_record_of(self._parked(record)):
                return record
        return None

    async def _add_behind(self, message: ParkedMessage, marker: _Document) -> Kept | None:
        """Store a message in a key that is parked; None if its marker was changed meanwhile.

        The marker is written with each message of the key. So if it is still as it was read, what was read after
        it is right too, whatever replica has answered.

        Raises:
            NotStorable: As `Parking.park`.
        """
        near = await self._near(message)
        same = [each for each in near if message.is_repetition_of(self._parked(each))]
        if not same:
            position = position_among(map(self._parked, near), message)
            grown = _replaced(marker, {**marker, "messages": marker["messages"] + 1})
            return await self._add(replace(message, position=position), grown)
        if not await self._tried(message.key, [_replaced(marker, marker)]):
            return None
        if same[0]["isPlace"] and message.message is not None:
            raise NotStorable(ONLY_PLACE)
        return Kept.ASIDE

    async def _near(self, message: ParkedMessage) -> list[_Document]:
        """Return the records that tell the position of a message: `position_among` is not given all."""
        number = _number(message.number)
        topic, key = message.topic, message.key
        found = await self._find(topic, key, 1, "", "c.number DESC", fields=_WITHOUT_MESSAGE)
        # In records of the earlier version, `number` is that of the broker.
        same = "AND (c.sequenceNumber = @number OR c.number = @number)"
        known = {"@number": number}
        found += await self._find(topic, key, _TWINS, same, "c.number", known, _WITHOUT_MESSAGE)
        if message.enqueued_at is not None:
            behind = "AND c.sequenceNumber > @number AND c.subscription = @subscription AND c.enqueuedAt >= @time"
            values = {
                **known,
                "@subscription": message.subscription,
                "@time": time_text(message.enqueued_at),
            }
            found += await self._find(topic, key, 1, behind, "c.number", values, _WITHOUT_MESSAGE)
        return found

    async def _add(self, message: ParkedMessage, first: _Operation) -> Kept | None:
        """Store a message together with an operation on the marker; None if that one was refused."""
        operations = [first]
        if message.id:
            # Refused if the message was handled; otherwise nothing is left of it.
            note = await self._note(Identity(message.topic, message.key, message.id), message.key)
            operations += [("create", (note,), {}), ("delete", (note["id"],), {})]
        text = None if message.message is None else encode(message.message)
        record = {
            "id": self._ids(message)[0],
            "type": PARKED,
            "consumer": self._consumer,
            "topic": message.topic,
            "key": message.key,
            "number": _order(message),
            "subscription": message.subscription,
            "sequenceNumber": _number(message.number),
            "enqueuedAt": time_text(message.enqueued_at),
            "messageId": message.id,
            "message": text,
            "attempts": 0,
        }
        operations.append(("create", (await self._placed(record, message.key),), {}))
        try:
            await self._batch(message.key, operations)
        except _Refused as refused:
            if refused.status == _TOO_LARGE and text is not None:
                raise NotStorable(
                    f"The message has {len(text)} bytes as it is stored, which is too much."
                ) from None
            if refused.index == 0 and refused.status in (_MISSING, _EXISTS, _CHANGED):
                return None
            if refused.status == _EXISTS and refused.index < len(operations) - 1:
                return Kept.HANDLED
            raise
        return Kept.ASIDE

    async def _claimed(self, claim: Claim, done: ParkedMessage | None) -> tuple[_Document, list[_Operation]]:
        """Return a claimed key's marker, and the operations that remove a handled message if it still exists."""
        identifier = self._marker_id(claim.topic, claim.key)
        marker = await self._read(identifier, claim.key)
        if marker is None or marker["token"] != claim.token:
            raise ClaimLost
        if done is None:
            return marker, []
        record = await self._record_of(done)
        return marker, [] if record is None else [("delete", (record["id"],), {})]

    async def _tried(self, partition: str, operations: Sequence[_Operation]) -> bool:
        """Carry out a batch; False if something has changed meanwhile."""
        try:
            await self._batch(partition, operations)
        except _Refused as refused:
            if refused.status not in (_MISSING, _EXISTS, _CHANGED):
                raise
            await asyncio.sleep(_AGAIN_S)
            return False
        return True

    async def _batch(self, partition: str, operations: Sequence[_Operation]) -> None:
        from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

        try:
            done = await self._container.execute_item_batch(operations, partition_key=partition)
        except CosmosBatchOperationError as error:
            self._keep_session_token(error.headers)
            if error.status_code in (_MISSING, _EXISTS, _CHANGED, _TOO_LARGE):
                raise _Refused(error.error_index or 0, error.status_code) from error
            raise
        except CosmosHttpResponseError as error:
            if error.status_code == _TOO_LARGE:
                raise _Refused(0, _TOO_LARGE) from error
            raise
        self._keep_session_token(done.get_response_headers())

    async def _records(self, topic: str, key: str, after: ParkedMessage | None, limit: int) -> list[_Document]:
        start = "" if after is None else _order(after)
        return await self._find(topic, key, limit, "AND c.number > @after", "c.number", {"@after": start})

    async def _find(
        self,
        topic: str,
        key: str,
        limit: int,
        condition: str,
        order: str,
        parameters: Mapping[str, object] | None = None,
        fields: str = "*",
    ) -> list[_Document]:
        query = (
            f"SELECT TOP {limit:d} {fields} FROM c WHERE c.type = @type AND c.consumer = @consumer"
            f" AND c.topic = @topic AND c.key = @key {condition} ORDER BY {order}"
        )
        values = {
            "@type": PARKED,
            "@consumer": self._consumer,
            "@topic": topic,
            "@key": key,
            **(parameters or {}),
        }
        found = self._container.query_items(query, parameters=_parameters(values), partition_key=key)
        return [each async for each in found]

    def _marker_id(self, topic: str, key: str) -> str:
        return self._identifier(MARKER, self._consumer, topic, key)

    def _new_marker(self, topic: str, key: str, cause: Cause) -> _Document:
        return {
            "id": self._marker_id(topic, key),
            "type": MARKER,
            "consumer": self._consumer,
            "topic": topic,
            "key": key,
            "since": datetime.now(UTC).isoformat(),
            "reason": cause.reason,
            "error": cause.error,
            "detail": cause.detail,
            "released": False,
            "token": "",
            "until": 0,
            "messages": 1,
        }

    def _ids(self, message: ParkedMessage) -> list[str]:
        """Return the ids that a message's record may have; the second is that of the earlier version."""
        prefix = f"{PARKED}-{self._marker_id(message.topic, message.key)}-"
        may_be_earlier = message.position == message.number and not message.subscription
        return [prefix + _order(message), *([prefix + _number(message.number)] if may_be_earlier else [])]

    def _parked(self, record: _Document) -> ParkedMessage:
        text, time = record.get("message"), record.get("enqueuedAt")
        position, _, number = record["number"].partition("-")
        return ParkedMessage(
            record["topic"],
            record["key"],
            record["messageId"],
            int(number or position),
            None if text is None else decode(text),
            record["attempts"],
            record.get("subscription", ""),
            None if time is None else datetime.fromisoformat(time),
            int(position),
        )


def _number(number: int) -> str:
    """Return a broker's number as text that sorts in order: JSON's numbers are too small for it."""
    return f"{number:020d}"


def _order(message: ParkedMessage) -> str:
    """Return the property `number`, by which the messages of a key are in order.

    In records of the earlier version it is the broker's number alone, which is the position too.
    """
    return f"{_number(message.position)}-{_number(message.number)}"


def _counted(marker: str, count: int) -> _Operation:
    return "patch", (marker, [{"op": "incr", "path": "/messages", "value": count}]), {}


def _replaced(marker: _Document, by: _Document) -> _Operation:
    return "replace", (marker["id"], by), {"if_match_etag": marker["_etag"]}


def _deleted(marker: _Document) -> _Operation:
    return "delete", (marker["id"],), {"if_match_etag": marker["_etag"]}


def _parameters(values: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in values.items()]
