"""Every error of the relay, and which kind a refusal by Service Bus is.

RelayError
├── SettingsError         configuration: the settings are wrong; the app does not start until they are right
├── ChangesError          what the trigger delivered is not a JSON array of documents; the retry policy repeats it
├── LeaseError            the leases, which old events are compared with, could not be read; likewise
├── QuarantineError       the quarantine container could not be read or written; likewise
├── PublishError          some events of an invocation were not accepted; likewise
├── AccountingError       the parts of an outcome do not add up to the events received; likewise
├── OperationError        a command of `python -m relay` cannot do its work
│   ├── UsageError          what was asked for makes no sense; nothing was done
│   └── ServiceError        Cosmos DB or Service Bus cannot be reached, or refuses; told as far as it came
└── SendError             one send did not succeed
    ├── RetryableError        the network, the service or its capacity: the next attempt may succeed
    ├── StaleClearanceError   it is too long ago that this event was compared with the lease
    ├── ConfigurationError    the entity or the credentials: nothing succeeds until somebody changes them
    ├── DoubtfulRefusalError  an event is refused, but it is not certain yet that its content is the cause
    ├── RefusedAlikeError     many partition keys are refused alike, so the cause is not the content of one event
    ├── BlockedError          RELAY_ON_POISON=block: the partition key waits for an operator
    └── PoisonError           the content: this message can never be accepted, so it goes to quarantine

Only `PoisonError` may lead to quarantine, and only the outcome of the very transfer that carried a message makes
one. Whatever is not known to be about the content blocks and is retried: an event that waits is late, an event
wrongly set aside is lost to its subscribers.
"""

from __future__ import annotations

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus._pyamqp.error import AMQPException, AMQPLinkError, MessageException, TokenAuthFailure
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)


class RelayError(Exception):
    """The base of every error the relay raises by itself."""


class SettingsError(RelayError):
    """One or more settings are missing or wrong; the message names each one and its remedy."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} setting(s) to put right before the relay can start:\n{lines}")


class ChangesError(RelayError):
    """What the trigger delivered cannot be read as a JSON array of documents."""


class LeaseError(RelayError):
    """The lease container could not be read, so it is not known whether old events were published already."""


class QuarantineError(RelayError):
    """The quarantine container could not be read, or a document could not be stored in it."""


class PublishError(RelayError):
    """Not every event of this invocation was accepted; those that were not are sent again by the next attempt."""


class AccountingError(RelayError):
    """The parts of an outcome do not add up to the events received: a defect, so nothing is checkpointed."""


class OperationError(RelayError):
    """A command of `python -m relay` cannot do its work."""


class UsageError(OperationError):
    """What was asked for makes no sense, or cannot be done this way; nothing was done."""


class ServiceError(OperationError):
    """Cosmos DB or Service Bus cannot be reached, or refuses."""


class SendError(RelayError):
    """A send to Service Bus did not succeed."""


class RetryableError(SendError):
    """The network, the service or its capacity stood in the way; the retry policy tries again.

    Attributes:
        refused: The service has answered the very transfer, with an error that may pass.
        busy: The service asks for a pause.
    """

    def __init__(self, message: str, *, refused: bool = False, busy: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.busy = busy


class StaleClearanceError(SendError):
    """It is too long ago that an event was compared with the lease: the next attempt compares it again."""


class ConfigurationError(SendError):
    """The topic or the credentials stand in the way; retried until somebody puts them right."""


class RefusedAlikeError(SendError):
    """Service Bus refuses the content of every message alike: something else has changed. Nothing is set aside."""


class DoubtfulRefusalError(SendError):
    """Service Bus refuses the content of an event, and nothing shows yet that it would accept another's."""


class BlockedError(SendError):
    """A poisoned event holds up its partition key, as `RELAY_ON_POISON=block` asks for."""


class PoisonError(SendError):
    """Service Bus refuses the content of this message, and always will.

    Attributes:
        too_large: It is the size that is refused.
        condition: The AMQP condition of the refusal.
    """

    def __init__(self, message: str, *, condition: str, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large
        self.condition = condition


_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"

# Conditions with which the service refuses what a message says. They arrive as the outcome of one transfer.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot
_CONTENT_CONDITIONS = frozenset(
    {
        "amqp:not-allowed",
        "amqp:invalid-field",
        "amqp:decode-error",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    }
)

_NO_TOPIC = "Create the topic that SERVICEBUS_TOPIC names, or correct the setting."

_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (MessagingEntityNotFoundError, _NO_TOPIC),
    (MessagingEntityDisabledError, "Set the topic's status to Active."),
    (ServiceBusAuthenticationError, "Check SERVICEBUS: the namespace refused the credentials."),
    (
        ServiceBusAuthorizationError,
        "Give the app's identity the role 'Azure Service Bus Data Sender' on the topic, "
        "or use a key with the Send right.",
    ),
    (
        ClientAuthenticationError,
        "Could not acquire a token: check SERVICEBUS__credential, SERVICEBUS__clientId and the app's identity.",
    ),
)


def classify(error: Exception) -> SendError:
    """Tell which kind of refusal `error`, raised by a send or by opening its link, is.

    The SDK raises the same public error for the outcome of a transfer and for the state of a link: a link that was
    detached after an oversized message raises MessageSizeExceededError for every later message
    (Azure/azure-sdk-for-python issue 37916). Only the error inside tells them apart: MessageException is the
    outcome of the transfer, AMQPLinkError the state of the link (azure-servicebus 7.15.0, `_pyamqp/error.py`).

    Args:
        error: What azure-servicebus, azure-identity or the event loop raised.

    Returns:
        An error that says what happened and what to do. Unknown errors are retryable.
    """
    if isinstance(error, SendError):
        return error
    said = f"{type(error).__name__}: {error}".strip()
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    if isinstance(inner, MessageException):
        return _outcome_of_transfer(error, inner, said)
    if isinstance(inner, AMQPLinkError) and _condition(inner) in _CONTENT_CONDITIONS:
        return ConfigurationError(f"The link to the topic was refused, before any message was sent: {said}")
    return _blocking(error, inner, said)


def _outcome_of_transfer(error: Exception, inner: MessageException, said: str) -> SendError:
    condition = _condition(inner)
    if condition == _SIZE_EXCEEDED:
        return PoisonError(said, condition=condition, too_large=True)
    if condition in _CONTENT_CONDITIONS:
        return PoisonError(said, condition=condition)
    blocking = _blocking(error, inner, said)
    # Without a disposition (the link was detached, the connection lost) the SDK makes up one of these two.
    if isinstance(blocking, RetryableError) and condition not in ("amqp:unknown-error", "amqp:client-error"):
        blocking.refused = True
    return blocking


def _blocking(error: Exception, inner: BaseException | None, said: str) -> SendError:
    if isinstance(inner, TokenAuthFailure) and inner.status_code == 404:
        # The service answers an unknown entity where its token is put, and the SDK calls that authentication.
        return ConfigurationError(f"{said} {_NO_TOPIC}")
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return ConfigurationError(f"{said} {remedy}")
    if isinstance(error, ServiceBusQuotaExceededError):
        return RetryableError(f"{said} Make room in the topic's subscriptions, or raise its maximum size.")
    if isinstance(error, TimeoutError):
        return RetryableError("Service Bus did not answer within RELAY_SEND_TIMEOUT_S.")
    return RetryableError(said, busy=isinstance(error, ServiceBusServerBusyError))


def amqp_condition(error: Exception) -> str | None:
    """The AMQP condition behind an error of azure-servicebus, such as `amqp:not-allowed`; None without one."""
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    return _condition(inner) if isinstance(inner, AMQPException) else None


def _condition(error: AMQPException) -> str:
    condition = error.condition
    return condition.decode("ascii", errors="replace") if isinstance(condition, bytes) else str(condition)


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of what it says; the SDKs' messages run to pages."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__
