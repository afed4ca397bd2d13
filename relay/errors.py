"""Every error of the relay, and which kind a refusal by Service Bus is.

RelayError
├── SettingsError         configuration: the settings are wrong; the app does not start until they are right
├── QuarantineError       the quarantine container could not be written; the retry policy repeats the invocation
├── PublishError          some events of an invocation were not accepted; the trigger's retry policy repeats it
├── OperationError        a command of `python -m relay` cannot do its work
│   ├── UsageError          what was asked for makes no sense; nothing was done
│   └── ServiceError        Cosmos DB or Service Bus cannot be reached, or refuses; told as far as it came
└── SendError             one send did not succeed
    ├── RetryableError      the network, the service or its capacity: the next attempt may succeed
    ├── ConfigurationError  the entity or the credentials: nothing succeeds until somebody changes them
    └── PoisonError         the content: this message can never be accepted, so it goes to quarantine

Only `PoisonError` may lead to quarantine. Whatever is not known to be about the content blocks and is retried:
an event that waits is late, an event wrongly set aside is lost to its subscribers.
"""

from __future__ import annotations

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)


class RelayError(Exception):
    """The base of every error the relay raises by itself."""


class SettingsError(RelayError):
    """One or more settings are missing or wrong; the message names each one and its remedy."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} setting(s) to put right before the relay can start:\n{lines}")


class QuarantineError(RelayError):
    """A document that cannot become a message could not be stored in the quarantine container either."""


class PublishError(RelayError):
    """Not every event of this invocation was accepted; those that were not are sent again by the next attempt."""


class OperationError(RelayError):
    """A command of `python -m relay` cannot do its work."""


class UsageError(OperationError):
    """What was asked for makes no sense, or cannot be done this way; nothing was done."""


class ServiceError(OperationError):
    """Cosmos DB or Service Bus cannot be reached, or refuses."""


class SendError(RelayError):
    """A send to Service Bus did not succeed."""


class RetryableError(SendError):
    """The network, the service or its capacity stood in the way; the retry policy tries again."""


class ConfigurationError(SendError):
    """The topic or the credentials stand in the way; retried until somebody puts them right."""


class PoisonError(SendError):
    """Service Bus refuses the content of this message, and always will."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


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

_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (MessagingEntityNotFoundError, "Create the topic that SERVICEBUS_TOPIC names, or correct the setting."),
    (MessagingEntityDisabledError, "Set the topic's status to Active."),
    (ServiceBusAuthenticationError, "Check SERVICEBUS: the namespace refused the credentials."),
    (
        ServiceBusAuthorizationError,
        "Give the app's identity the role 'Azure Service Bus Data Sender' on the topic, "
        "or use a key with the Send right.",
    ),
    (
        ClientAuthenticationError,
        "No token could be had: check SERVICEBUS__credential, SERVICEBUS__clientId and the app's identity.",
    ),
)


def classify(error: Exception) -> SendError:
    """Tell which kind of refusal `error`, raised by a send or by opening its link, is.

    Args:
        error: What azure-servicebus, azure-identity or the event loop raised.

    Returns:
        An error that says what happened and what to do. Unknown errors are retryable.
    """
    if isinstance(error, SendError):
        return error
    said = f"{type(error).__name__}: {error}".strip()
    if isinstance(error, MessageSizeExceededError):
        return PoisonError(said, too_large=True)
    if amqp_condition(error) in _CONTENT_CONDITIONS:
        return PoisonError(said)
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return ConfigurationError(f"{said} {remedy}")
    if isinstance(error, ServiceBusQuotaExceededError):
        return RetryableError(f"{said} Make room in the topic's subscriptions, or raise its maximum size.")
    if isinstance(error, TimeoutError):
        return RetryableError("Service Bus did not answer within RELAY_SEND_TIMEOUT_S.")
    return RetryableError(said)


def amqp_condition(error: Exception) -> str | None:
    """The AMQP condition behind an error of azure-servicebus, such as `amqp:not-allowed`; None without one."""
    if not isinstance(error, ServiceBusError):
        return None
    condition = getattr(error.inner_exception, "condition", None)
    if isinstance(condition, bytes):
        return condition.decode("ascii", errors="replace")
    return condition if isinstance(condition, str) else None


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of what it says; the SDKs' messages run to pages."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__
