"""The management node of an entity: which operations it has, and what each requires."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proton import Message

from outbox_relay.emulators.servicebus.authorization import Right
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid, NotImplementedHere, ServiceBusError
from outbox_relay.emulators.servicebus.management import messages, rules, sessions
from outbox_relay.emulators.servicebus.management.request import Request, Result
from outbox_relay.emulators.servicebus.namespace import MANAGEMENT_SUFFIX
from outbox_relay.emulators.servicebus.requests import failure, management_response, properties_of

LOG = logging.getLogger(__name__)

NO_CONTENT = 204


class ManagementNode:
    """The management node of one entity."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._path = node[: -len(MANAGEMENT_SUFFIX)]

    def answer(self, connection: AmqpConnection, request: Message) -> Message:
        """Carry out a request; the answer says what is wrong with it."""
        name = str(properties_of(request).get("operation", ""))
        try:
            operation = _OPERATIONS.get(name)
            if operation is None:
                raise NotImplementedHere(f"The operation '{name}' is not supported by the local Service Bus.")
            connection.claims.check(self._node, operation.needed)
            if not isinstance(request.body, Mapping):
                raise ArgumentInvalid(f"The operation '{name}' needs a map for its body.")
            result = operation.carry_out(Request(connection, self._path, request.body))
        except ServiceBusError as error:
            LOG.info("%s on %s refused: %s", name, self._path, error.description)
            return failure(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return failure(ArgumentInvalid(f"The request '{name}' has a missing or malformed field: {error}"))
        if result is None:
            return management_response(NO_CONTENT, "No content", operation.nothing)
        answer = management_response(200, "OK")
        answer.body = result
        return answer


@dataclass(frozen=True, slots=True)
class _Operation:
    """`needed` are rights of which the client must have one; `nothing` is the condition of an answer without any.

    Rules need Listen alone over AMQP (remarks on ServiceBusRuleManager in azure-sdk-for-net).
    """

    carry_out: Callable[[Request], Result]
    needed: Right = Right.LISTEN
    nothing: str | None = None


_OPERATIONS = {
    "com.microsoft:renew-lock": _Operation(messages.renew_locks),
    "com.microsoft:receive-by-sequence-number": _Operation(messages.receive_by_sequence_number),
    "com.microsoft:update-disposition": _Operation(messages.update_disposition),
    "com.microsoft:peek-message": _Operation(messages.peek),
    "com.microsoft:schedule-message": _Operation(messages.schedule, Right.SEND),
    "com.microsoft:cancel-scheduled-message": _Operation(messages.cancel_scheduled, Right.SEND),
    "com.microsoft:batch-delete-messages": _Operation(
        messages.delete_messages, nothing="com.microsoft:message-not-found"
    ),
    "com.microsoft:renew-session-lock": _Operation(sessions.renew_session_lock),
    "com.microsoft:get-session-state": _Operation(sessions.get_session_state),
    "com.microsoft:set-session-state": _Operation(sessions.set_session_state),
    "com.microsoft:get-message-sessions": _Operation(sessions.list_sessions),
    "com.microsoft:add-rule": _Operation(rules.add_rule),
    "com.microsoft:remove-rule": _Operation(rules.remove_rule),
    "com.microsoft:enumerate-rules": _Operation(rules.enumerate_rules),
}
