from __future__ import annotations

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from relay.errors import ConfigurationError, PoisonError, RetryableError, SendError, classify


class AmqpError(Exception):
    """As the SDK's own: it carries the condition of the AMQP error."""

    def __init__(self, condition: bytes) -> None:
        super().__init__(condition)
        self.condition = condition


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MessageSizeExceededError(), PoisonError),
        (ServiceBusError("no", error=AmqpError(b"amqp:not-allowed")), PoisonError),
        (ServiceBusError("no", error=AmqpError(b"com.microsoft:argument-error")), PoisonError),
        (ServiceBusError("no", error=AmqpError(b"amqp:internal-error")), RetryableError),
        (ServiceBusError("no"), RetryableError),
        (MessagingEntityNotFoundError(), ConfigurationError),
        (MessagingEntityDisabledError(), ConfigurationError),
        (ServiceBusAuthenticationError(), ConfigurationError),
        (ServiceBusAuthorizationError(), ConfigurationError),
        (ClientAuthenticationError("no token"), ConfigurationError),
        (ServiceBusQuotaExceededError(), RetryableError),
        (ServiceBusServerBusyError(), RetryableError),
        (ServiceBusConnectionError(), RetryableError),
        (TimeoutError(), RetryableError),
        (ConnectionResetError("peer"), RetryableError),
        (RuntimeError("something nobody foresaw"), RetryableError),
    ],
)
def test_only_a_refusal_of_the_content_is_poison(error: Exception, kind: type[SendError]) -> None:
    assert type(classify(error)) is kind


def test_a_message_that_is_too_large_is_told_from_one_that_is_refused() -> None:
    too_large, refused = (
        classify(MessageSizeExceededError()),
        classify(ServiceBusError("no", error=AmqpError(b"amqp:not-allowed"))),
    )

    assert isinstance(too_large, PoisonError)
    assert too_large.too_large
    assert isinstance(refused, PoisonError)
    assert not refused.too_large


def test_a_configuration_error_says_what_to_do() -> None:
    assert "SERVICEBUS_TOPIC" in str(classify(MessagingEntityNotFoundError()))
    assert "Azure Service Bus Data Sender" in str(classify(ServiceBusAuthorizationError()))
