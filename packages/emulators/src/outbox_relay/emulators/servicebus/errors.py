"""The errors the broker answers with, each with the AMQP error condition of the service.

    ServiceBusError
    ├── NotFound                 amqp:not-found
    ├── AlreadyExists            com.microsoft:entity-already-exists
    ├── Unauthorized             amqp:unauthorized-access
    ├── NotAllowed               amqp:not-allowed
    ├── NotImplementedHere       amqp:not-implemented
    ├── DecodeFailed             amqp:decode-error
    ├── MessageTooLarge          amqp:link:message-size-exceeded
    ├── PropertiesTooLarge       amqp:internal-error
    ├── ArgumentInvalid          com.microsoft:argument-error
    ├── EntityDisabled           com.microsoft:entity-disabled
    ├── ServerBusy               com.microsoft:server-busy
    ├── ConnectionForced         amqp:connection:forced
    ├── DetachForced             amqp:link:detach-forced
    │   └── IdleTimerExpired
    ├── TimedOut                 com.microsoft:timeout
    ├── MessageLockLost          com.microsoft:message-lock-lost
    ├── MessageNotFound          com.microsoft:message-not-found
    ├── SessionLockLost          com.microsoft:session-lock-lost
    ├── SessionCannotBeLocked    com.microsoft:session-cannot-be-locked
    ├── TooManyHops              never sent: the reason of a dead letter
    └── Refused                  any condition, by an injected fault
        └── RefusedWithLink

Conditions are those azure-servicebus maps to its exceptions (`_transport/_pyamqp_transport.py`) and those users
report from the service: `amqp:not-allowed` wherever the .NET SDK raises InvalidOperationException.
"""

from __future__ import annotations

from datetime import timedelta

UNABLE_TO_PROCESS = (
    "The service was unable to process the request; please retry the operation. For more information on exception "
    "types and proper exception handling, please refer to http://go.microsoft.com/fwlink/?LinkId=761101"
)


class ServiceBusError(Exception):
    """The broker refused an operation.

    `condition` is the AMQP error condition; `status` the code in the answer to a management request.
    """

    condition = "amqp:internal-error"
    status = 500

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


class NotFound(ServiceBusError):
    """The messaging entity could not be found."""

    condition = "amqp:not-found"
    status = 404

    @classmethod
    def entity(cls, address: str) -> NotFound:
        """Return the error for an address, as the service words it (azure-service-bus issues 304 and 451)."""
        return cls(
            f"The messaging entity '{address}' could not be found. To know more visit "
            "https://aka.ms/sbResourceMgrExceptions."
        )


class AlreadyExists(ServiceBusError):
    """There is an entity, or a rule, of this name already."""

    condition = "com.microsoft:entity-already-exists"
    status = 409


class Unauthorized(ServiceBusError):
    """No valid token was put for this entity."""

    condition = "amqp:unauthorized-access"
    status = 401


class NotAllowed(ServiceBusError):
    """The entity, as it is set up, does not allow this operation."""

    condition = "amqp:not-allowed"
    status = 400


class NotImplementedHere(ServiceBusError):
    """The service may have this operation; this broker does not."""

    condition = "amqp:not-implemented"
    status = 501


class DecodeFailed(ServiceBusError):
    """The content is not an AMQP message."""

    condition = "amqp:decode-error"
    status = 400


class MessageTooLarge(ServiceBusError):
    """The message is larger than the link takes."""

    condition = "amqp:link:message-size-exceeded"
    status = 400


class PropertiesTooLarge(ServiceBusError):
    """The properties of the message exceed a limit; the service answers as if it had failed itself.

    The limits are those of "Service Bus quotas" (learn.microsoft.com). The answer is the one in azure-sdk-for-net
    issue 15325; it names neither the property nor the limit, and asks for a retry.
    """

    def __init__(self) -> None:
        super().__init__(UNABLE_TO_PROCESS)


class ArgumentInvalid(ServiceBusError):
    """A property of the message or an argument of the request has a value that is not valid."""

    condition = "com.microsoft:argument-error"
    status = 400


class EntityDisabled(ServiceBusError):
    """The messaging entity is disabled."""

    condition = "com.microsoft:entity-disabled"
    status = 403


class ServerBusy(ServiceBusError):
    """The entity or the namespace is being throttled."""

    condition = "com.microsoft:server-busy"
    status = 503


class DetachForced(ServiceBusError):
    """The broker detaches a link."""

    condition = "amqp:link:detach-forced"
    status = 410


class TransferLimitExceeded(ServiceBusError):
    """The client sends more than the link has credit for."""

    condition = "amqp:link:transfer-limit-exceeded"
    status = 400


class IdleTimerExpired(DetachForced):
    """A link has been idle for longer than it may."""

    def __init__(self, name: str, role: str | None, idle_s: float) -> None:
        """`role` is the client's: "sender" or "receiver"."""
        kind = "publisher" if role == "sender" else "consumer"
        super().__init__(
            f"The link '{name}' is force detached. Code: {kind}. Details: AmqpMessage{kind.capitalize()}."
            f"IdleTimerExpired: Idle timeout: {timedelta(seconds=idle_s)}."
        )


class ConnectionForced(ServiceBusError):
    """The broker closes a connection."""

    condition = "amqp:connection:forced"
    status = 503


class TimedOut(ServiceBusError):
    """The operation did not complete within the time given for it."""

    condition = "com.microsoft:timeout"
    status = 408


class MessageLockLost(ServiceBusError):
    """The lock supplied is invalid: it expired, or the message was settled already."""

    condition = "com.microsoft:message-lock-lost"
    status = 410


class MessageNotFound(ServiceBusError):
    """There is no such message, or it is not in the state the operation asks for."""

    condition = "com.microsoft:message-not-found"
    status = 404


class SessionLockLost(ServiceBusError):
    """The lock on the session expired or was never this receiver's."""

    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLocked(ServiceBusError):
    """Another receiver holds the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    status = 409


class TooManyHops(ServiceBusError):
    """A message was forwarded as often as it may be.

    ("Overview of Service Bus dead-letter queues", learn.microsoft.com, has the reason and its description.)
    """

    condition = "MaxTransferHopCountExceeded"


class Refused(ServiceBusError):
    """An injected fault refuses the transfer, or ends what it came over.

    `described_info` puts described types into the error's info, which AMQP 1.0 allows (part 2, section 2.8.14).
    """

    def __init__(self, condition: str, description: str, *, described_info: bool = False) -> None:
        super().__init__(description)
        self.condition = condition
        self.described_info = described_info


class RefusedWithLink(Refused):
    """An injected fault refuses the transfer, and detaches the link with the same error."""
