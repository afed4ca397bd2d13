"""The cause of an error of azure-servicebus: this message, this moment, or the configuration."""

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

from relay.core.errors import ConfigurationError, PoisonError, RetryableError, SendError

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

_NO_TOPIC = "Create the {kind} that {entity} names, or correct that name."
_FULL = "Make room in the {kind} that {entity} names: receive its messages and dead letters, or enlarge it."

_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (MessagingEntityNotFoundError, _NO_TOPIC),
    (MessagingEntityDisabledError, "Set the {kind}'s status to Active."),
    (ServiceBusAuthenticationError, "Check {connection}: the namespace refused the credentials."),
    (
        ServiceBusAuthorizationError,
        "Give the app's identity the role 'Azure Service Bus Data Sender' on the {kind}, "
        "or use a key with the Send right.",
    ),
    (
        ClientAuthenticationError,
        "Could not acquire a token: check {connection}__credential, {connection}__clientId and the app's "
        "identity.",
    ),
)


def classify(error: Exception) -> SendError:
    """Classify an error that was raised by a send, or by opening its link.

    The SDK raises the same public error for the outcome of a transfer and for the state of a link: a link that was
    detached after an oversized message raises MessageSizeExceededError for every later message
    (Azure/azure-sdk-for-python issue 37916). The inner error distinguishes them: MessageException is the
    outcome of the transfer, AMQPLinkError the state of the link (azure-servicebus 7.15.0, `_pyamqp/error.py`).

    Returns an error that says what happened and what to do. Unknown errors are retryable.
    """
    if isinstance(error, SendError):
        return error
    said = f"{type(error).__name__}: {error}".strip()
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    if isinstance(inner, MessageException):
        return _outcome_of_transfer(error, inner, said)
    if isinstance(inner, AMQPLinkError) and _condition(inner) in _CONTENT_CONDITIONS:
        return ConfigurationError(f"Service Bus has refused the link, which says nothing of a message: {said}")
    return _blocking(error, inner, said)


def _outcome_of_transfer(error: Exception, inner: MessageException, said: str) -> SendError:
    condition = _condition(inner)
    if condition == _SIZE_EXCEEDED:
        return PoisonError(said, condition=condition, too_large=True)
    if condition in _CONTENT_CONDITIONS:
        return PoisonError(said, condition=condition)
    blocking = _blocking(error, inner, said)
    # A busy service, or one without room, says nothing of the message.
    if isinstance(blocking, RetryableError) and not is_made_up(inner) and not _is_about_the_service(error):
        blocking.refused = True
    return blocking


def is_made_up(inner: MessageException) -> bool:
    """Return True if this outcome is the SDK's own: it makes one up if the link or the connection has ended."""
    return _condition(inner) in ("amqp:unknown-error", "amqp:client-error")


def _is_about_the_service(error: Exception) -> bool:
    return isinstance(error, (ServiceBusServerBusyError, ServiceBusQuotaExceededError))


def _blocking(error: Exception, inner: BaseException | None, said: str) -> SendError:
    if isinstance(inner, TokenAuthFailure) and inner.status_code == 404:
        # The service answers an unknown entity where its token is put, and the SDK calls that authentication.
        return ConfigurationError(said, _NO_TOPIC)
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return ConfigurationError(said, remedy)
    if isinstance(error, ServiceBusQuotaExceededError):
        return RetryableError(said, _FULL)
    if isinstance(error, TimeoutError):
        return RetryableError("Service Bus did not answer within RELAY_SEND_TIMEOUT_S.")
    return RetryableError(said, busy=isinstance(error, ServiceBusServerBusyError))


def amqp_condition(error: Exception) -> str | None:
    """Return the AMQP condition behind an error of azure-servicebus.

    It is None without one; `amqp:not-allowed` is one.
    """
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    return _condition(inner) if isinstance(inner, AMQPException) else None


def _condition(error: AMQPException) -> str:
    condition = error.condition
    return condition.decode("ascii", errors="replace") if isinstance(condition, bytes) else str(condition)
