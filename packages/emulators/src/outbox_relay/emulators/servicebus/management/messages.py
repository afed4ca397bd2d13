"""Operations on messages: peek, schedule, delete, receive deferred ones, settle them, renew locks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from proton import Data, int32, timestamp

from outbox_relay.emulators.servicebus import settlement
from outbox_relay.emulators.servicebus.broker import Limits
from outbox_relay.emulators.servicebus.entry import Entry, Lock
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid, NotAllowed
from outbox_relay.emulators.servicebus.management.request import Request, Result, array, elements
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.partitions import partition_in
from outbox_relay.emulators.servicebus.session_queue import SessionQueue

_PEEKED = 250
_PEEKED_BYTES = 262_144


def renew_locks(request: Request) -> Result:
    queue = request.queue()
    if isinstance(queue, SessionQueue):
        raise NotAllowed("The lock of a message of a session cannot be renewed: renew that of the session.")
    moments = [timestamp(queue.renew_lock(token)) for token in _tokens(request)]
    return {"expirations": array(Data.TIMESTAMP, moments)}


def receive_by_sequence_number(request: Request) -> Result:
    queue = request.queue()
    numbers = _numbers(request)
    delete = int(request.body["receiver-settle-mode"]) == 0
    if isinstance(queue, SessionQueue):
        session_id = str(request.body["session-id"])
        queue.check_held(session_id, request.owned())
        taken = queue.receive_deferred(numbers, delete=delete, session_id=session_id)
    else:
        taken = queue.receive_deferred(numbers, delete=delete)
    return {"messages": [_locked_message(entry, lock) for entry, lock in taken]}


def update_disposition(request: Request) -> Result:
    queue, body = request.queue(), request.body
    status = str(body["disposition-status"])
    changes = settlement.changes(body.get("properties-to-modify"))
    for token in _tokens(request):
        if status == "completed":
            queue.complete(token)
        elif status == "abandoned":
            queue.abandon(token, changes)
        elif status == "defered":
            queue.defer(token, changes)
        elif status == "suspended":
            queue.dead_letter(token, body.get("deadletter-reason"), body.get("deadletter-description"), changes)
        else:
            raise ArgumentInvalid(f"The disposition status '{status}' is not supported.")
    return {}


def peek(request: Request) -> Result:
    """Peek; with `omit-message-body`, which azure-sdk-for-js sends, without what the messages carry."""
    body = request.body
    start, limit = int(body["from-sequence-number"]), int(body["message-count"])
    topic = request.broker.namespace.topics.get(request.path.lower())
    if topic is not None:
        entries = topic.peek(start, limit)
    else:
        entries = request.queue().peek(start, limit, body.get("session-id"))
    omits = bool(body.get("omit-message-body"))
    page = _page(entries, omits=omits)
    return {"messages": [{"message": encoded} for encoded in page]} if page else None


def _page(entries: list[Entry], *, omits: bool) -> list[bytes]:
    """Return the messages that one answer has, encoded: those of one partition, and no more than fit.

    "Partitioned queues and topics", learn.microsoft.com: a page ends at 256 KB, and with a partition. 250 messages
    are what was seen of the service at most (azure-sdk-for-python issue 26643).
    """
    page: list[bytes] = []
    size = 0
    for entry in entries[:_PEEKED]:
        encoded = entry.encode(omit_body=omits)
        size += len(encoded)
        if page and (size > _PEEKED_BYTES or _partition(entry) != _partition(entries[0])):
            break
        page.append(encoded)
    return page


def _partition(entry: Entry) -> int:
    return partition_in(entry.sequence_number)


def schedule(request: Request) -> Result:
    destination = request.broker.namespace.destination(request.path)
    limit = request.broker.limits(destination.inlet.settings).message
    messages = []
    for each in request.body["messages"]:
        data = bytes(each["message"])
        if len(data) > limit:
            raise ArgumentInvalid(f"A message takes {len(data)} bytes; the limit is {limit}.")
        message = parse(data).identified()
        if message.scheduled_ms is None:
            raise ArgumentInvalid("A message to schedule has no x-opt-scheduled-enqueue-time.")
        messages.append(message)
    return {"sequence-numbers": array(Data.LONG, destination.publish(messages))}


def cancel_scheduled(request: Request) -> Result:
    request.broker.namespace.destination(request.path).cancel_scheduled(_numbers(request))
    return {}


def delete_messages(request: Request) -> Result:
    """Delete messages that were enqueued before a moment ("Batch delete messages", learn.microsoft.com).

    The fields are those of azure-sdk-for-js and -go. Not for partitioned entities, and limited by the tier.
    """
    queue, body = request.queue(), request.body
    limit, before_ms = int(body["message-count"]), int(body["enqueued-time-utc"])
    largest = Limits.of(request.broker.tier).deletion
    if not 1 <= limit <= largest:
        raise ArgumentInvalid(f"The message-count is {limit}; it must be from 1 to {largest}.")
    if queue.settings.partitioned:
        raise NotAllowed(f"Messages of the partitioned entity '{request.path}' cannot be deleted in a batch.")
    session_id = None
    if isinstance(queue, SessionQueue):
        session_id = str(body["session-id"])
        queue.check_held(session_id, request.owned())
    deleted = queue.delete_messages(limit, before_ms, session_id)
    return {"message-count": int32(deleted)} if deleted else None


def _tokens(request: Request) -> list[bytes]:
    return [UUID(str(token)).bytes_le for token in elements(request.body["lock-tokens"])]


def _numbers(request: Request) -> list[int]:
    return [int(number) for number in elements(request.body["sequence-numbers"])]


def _locked_message(entry: Entry, lock: Lock | None) -> dict[str, Any]:
    if lock is None:
        return {"message": entry.encode()}
    # The client for Go looks for the token in the message alone.
    return {"lock-token": UUID(bytes_le=lock.token), "message": entry.delivered(lock)}
