"""Requests to an entity's `$management` node.

Operations, their fields and their answers: "AMQP 1.0 in Service Bus: request-response-based operations"
(learn.microsoft.com). Rules are not managed here: azure-servicebus does that over HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from proton import UNDESCRIBED, Array, Data, Message, timestamp

from outbox_emulators.servicebus.connection import AmqpConnection
from outbox_emulators.servicebus.entry import Entry, Lock
from outbox_emulators.servicebus.errors import ArgumentInvalid, NotAllowed, NotImplementedHere, ServiceBusError
from outbox_emulators.servicebus.namespace import MANAGEMENT_SUFFIX
from outbox_emulators.servicebus.parsing import parse
from outbox_emulators.servicebus.queue import MessageQueue
from outbox_emulators.servicebus.requests import failure, properties_of, response
from outbox_emulators.servicebus.session_consuming import SessionEndpoint
from outbox_emulators.servicebus.session_queue import SessionQueue

LOG = logging.getLogger(__name__)

NO_CONTENT = 204
_MAX_DATETIME_MS = 253_402_300_799_999
"""At or beyond .NET's DateTime.MaxValue a request for sessions means all of them."""

Body = Mapping[str, Any]
Result = dict[str, Any] | None


class ManagementNode:
    """The management node of one entity."""

    def __init__(self, node: str) -> None:
        self._path = node[: -len(MANAGEMENT_SUFFIX)]

    def answer(self, connection: AmqpConnection, request: Message) -> Message:
        """Carry out a request; the answer says what is wrong with it."""
        name = str(properties_of(request).get("operation", ""))
        try:
            operation = _OPERATIONS.get(name)
            if operation is None:
                raise NotImplementedHere(f"The operation '{name}' is not supported by the local Service Bus.")
            if not isinstance(request.body, Mapping):
                raise ArgumentInvalid(f"The operation '{name}' needs a map for its body.")
            result = operation(self, connection, request.body)
        except ServiceBusError as error:
            LOG.info("%s on %s refused: %s", name, self._path, error.description)
            return failure(error)
        except (KeyError, TypeError, ValueError) as error:
            return failure(ArgumentInvalid(f"The request '{name}' has a missing or malformed field: {error}"))
        if result is None:
            return response("statusCode", "statusDescription", NO_CONTENT, "No content")
        answer = response("statusCode", "statusDescription", 200, "OK")
        answer.body = result
        return answer

    # The entity of the request

    def _queue(self, connection: AmqpConnection) -> MessageQueue:
        source = connection.broker.namespace.source(self._path)
        source.check()
        return source.queue

    def _sessions(self, connection: AmqpConnection) -> SessionQueue:
        queue = self._queue(connection)
        if not isinstance(queue, SessionQueue):
            raise NotAllowed(f"The entity '{self._path}' does not require sessions.")
        return queue

    @staticmethod
    def _owned(connection: AmqpConnection) -> list[SessionEndpoint]:
        return [endpoint for endpoint in connection.links.endpoints() if isinstance(endpoint, SessionEndpoint)]

    # Messages

    def renew_locks(self, connection: AmqpConnection, body: Body) -> Result:
        queue = self._queue(connection)
        if isinstance(queue, SessionQueue):
            raise NotAllowed("The lock of a message of a session cannot be renewed: renew that of the session.")
        moments = [timestamp(queue.renew_lock(token)) for token in _tokens(body)]
        return {"expirations": _array(Data.TIMESTAMP, moments)}

    def receive_by_sequence_number(self, connection: AmqpConnection, body: Body) -> Result:
        queue = self._queue(connection)
        numbers = _numbers(body)
        delete = int(body["receiver-settle-mode"]) == 0
        if isinstance(queue, SessionQueue):
            session_id = str(body["session-id"])
            queue.check_held(session_id, self._owned(connection))
            taken = queue.receive_deferred(numbers, delete=delete, session_id=session_id)
        else:
            taken = queue.receive_deferred(numbers, delete=delete)
        return {"messages": [_locked_message(entry, lock) for entry, lock in taken]}

    def update_disposition(self, connection: AmqpConnection, body: Body) -> Result:
        queue = self._queue(connection)
        status = str(body["disposition-status"])
        changes = {str(name): value for name, value in (body.get("properties-to-modify") or {}).items()}
        for token in _tokens(body):
            if status == "completed":
                queue.complete(token)
            elif status == "abandoned":
                queue.abandon(token, changes)
            elif status == "defered":
                queue.defer(token, changes)
            elif status == "suspended":
                queue.dead_letter(
                    token, body.get("deadletter-reason"), body.get("deadletter-description"), changes
                )
            else:
                raise ArgumentInvalid(f"The disposition status '{status}' is not supported.")
        return {}

    def peek(self, connection: AmqpConnection, body: Body) -> Result:
        start, limit = int(body["from-sequence-number"]), int(body["message-count"])
        namespace = connection.broker.namespace
        topic = namespace.topics.get(self._path.lower())
        if topic is not None:
            entries = topic.peek(start, limit)
        else:
            entries = self._queue(connection).peek(start, limit, body.get("session-id"))
        if not entries:
            return None
        return {"messages": [{"message": entry.encode()} for entry in entries]}

    def schedule(self, connection: AmqpConnection, body: Body) -> Result:
        destination = connection.broker.namespace.destination(self._path)
        limit = connection.broker.limits(destination.inlet.settings).message
        messages = []
        for each in body["messages"]:
            data = bytes(each["message"])
            if len(data) > limit:
                raise ArgumentInvalid(f"A message takes {len(data)} bytes; the limit is {limit}.")
            message = parse(data).identified()
            if message.scheduled_ms is None:
                raise ArgumentInvalid("A message to schedule has no x-opt-scheduled-enqueue-time.")
            messages.append(message)
        return {"sequence-numbers": _array(Data.LONG, destination.publish(messages))}

    def cancel_scheduled(self, connection: AmqpConnection, body: Body) -> Result:
        connection.broker.namespace.destination(self._path).cancel_scheduled(_numbers(body))
        return {}

    # Sessions

    def renew_session_lock(self, connection: AmqpConnection, body: Body) -> Result:
        until = self._sessions(connection).renew_session_lock(str(body["session-id"]), self._owned(connection))
        return {"expiration": timestamp(until)}

    def get_session_state(self, connection: AmqpConnection, body: Body) -> Result:
        state = self._sessions(connection).get_state(str(body["session-id"]), self._owned(connection))
        return {"session-state": state}

    def set_session_state(self, connection: AmqpConnection, body: Body) -> Result:
        state = body.get("session-state")
        self._sessions(connection).set_state(
            str(body["session-id"]), self._owned(connection), None if state is None else bytes(state)
        )
        return {}

    def list_sessions(self, connection: AmqpConnection, body: Body) -> Result:
        after, skip, top = int(body["last-updated-time"]), int(body["skip"]), int(body["top"])
        ids = self._sessions(connection).session_ids(None if after >= _MAX_DATETIME_MS else after)
        page = ids[skip : skip + top]
        if not page:
            return None
        return {"skip": skip + len(page), "sessions-ids": page}


_OPERATIONS: dict[str, Callable[[ManagementNode, AmqpConnection, Body], Result]] = {
    "com.microsoft:renew-lock": ManagementNode.renew_locks,
    "com.microsoft:receive-by-sequence-number": ManagementNode.receive_by_sequence_number,
    "com.microsoft:update-disposition": ManagementNode.update_disposition,
    "com.microsoft:peek-message": ManagementNode.peek,
    "com.microsoft:schedule-message": ManagementNode.schedule,
    "com.microsoft:cancel-scheduled-message": ManagementNode.cancel_scheduled,
    "com.microsoft:renew-session-lock": ManagementNode.renew_session_lock,
    "com.microsoft:get-session-state": ManagementNode.get_session_state,
    "com.microsoft:set-session-state": ManagementNode.set_session_state,
    "com.microsoft:get-message-sessions": ManagementNode.list_sessions,
}


def _array(kind: int, values: Iterable[int]) -> Array:
    # Proton's annotation omits the constant for an array without a descriptor.
    return Array(UNDESCRIBED, kind, *values)  # type: ignore[arg-type]


def _elements(value: Any) -> Iterable[Any]:
    return value.elements if isinstance(value, Array) else value


def _tokens(body: Body) -> list[UUID]:
    return [UUID(str(token)) for token in _elements(body["lock-tokens"])]


def _numbers(body: Body) -> list[int]:
    return [int(number) for number in _elements(body["sequence-numbers"])]


def _locked_message(entry: Entry, lock: Lock | None) -> dict[str, Any]:
    if lock is None:
        return {"message": entry.encode()}
    return {"lock-token": lock.token, "message": entry.encode(lock.until_ms)}
