from __future__ import annotations

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPLinkError, MessageException, TokenAuthFailure
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

from relay.core.errors import (
    ConfigurationError,
    DestinationSettings,
    PoisonError,
    RetryableError,
    SendError,
    SettingsError,
    first_line,
)
from relay.servicebus.refusals import amqp_condition, classify


def outcome(condition: bytes) -> MessageException:
    """The outcome of the transfer that carried the message."""
    return MessageException(condition, description="no")


def link(condition: bytes) -> AMQPLinkError:
    """The state of a link, whoever's message it was about."""
    return AMQPLinkError(condition, description="no")


SIZE = b"amqp:link:message-size-exceeded"


CONTENT = (
    b"amqp:not-allowed",
    b"amqp:invalid-field",
    b"amqp:decode-error",
    b"com.microsoft:argument-error",
    b"com.microsoft:argument-out-of-range",
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MessageSizeExceededError(error=outcome(SIZE)), PoisonError),
        (MessageSizeExceededError(error=link(SIZE)), RetryableError),
        (MessageSizeExceededError(), RetryableError),
        *((ServiceBusError("no", error=outcome(condition)), PoisonError) for condition in CONTENT),
        *((ServiceBusError("no", error=link(condition)), ConfigurationError) for condition in CONTENT),
        (ServiceBusError("no", error=outcome(b"amqp:internal-error")), RetryableError),
        (ServiceBusServerBusyError(error=outcome(b"com.microsoft:server-busy")), RetryableError),
        (ServiceBusQuotaExceededError(error=outcome(b"amqp:resource-limit-exceeded")), RetryableError),
        (ServiceBusConnectionError(error=outcome(b"amqp:unknown-error")), RetryableError),
        (ServiceBusAuthorizationError(error=outcome(b"amqp:unauthorized-access")), ConfigurationError),
        (ServiceBusError("no", error=AMQPConnectionError(b"amqp:not-allowed")), RetryableError),
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


def test_a_message_that_is_too_large_is_distinguished_from_one_that_is_refused() -> None:
    too_large, refused = (
        classify(MessageSizeExceededError(error=outcome(SIZE))),
        classify(ServiceBusError("no", error=outcome(b"amqp:not-allowed"))),
    )

    assert isinstance(too_large, PoisonError)
    assert too_large.too_large
    assert isinstance(refused, PoisonError)
    assert not refused.too_large
    assert refused.condition == "amqp:not-allowed"


def test_a_configuration_error_says_what_to_do() -> None:
    assert "SERVICEBUS_TOPIC" in str(classify(MessagingEntityNotFoundError()))
    assert "Azure Service Bus Data Sender" in str(classify(ServiceBusAuthorizationError()))


def test_a_topic_that_does_not_exist_is_named_although_the_sdk_calls_it_authentication() -> None:
    missing, refused = (
        classify(ServiceBusAuthenticationError(error=TokenAuthFailure(status, b"no")))  # type: ignore[no-untyped-call]
        for status in (404, 401)
    )

    assert isinstance(missing, ConfigurationError)
    assert "SERVICEBUS_TOPIC" in str(missing)
    assert "Check SERVICEBUS:" not in str(missing)
    assert "Check SERVICEBUS:" in str(refused)


def test_an_answer_to_the_transfer_is_distinguished_from_its_loss_and_from_a_request_to_wait() -> None:
    answered = classify(ServiceBusError("no", error=outcome(b"amqp:internal-error")))
    lost = classify(ServiceBusConnectionError(error=outcome(b"amqp:unknown-error")))
    not_running = classify(ServiceBusError("no", error=outcome(b"amqp:client-error")))
    busy = classify(ServiceBusServerBusyError(error=outcome(b"com.microsoft:server-busy")))

    assert isinstance(answered, RetryableError)
    assert isinstance(lost, RetryableError)
    assert isinstance(not_running, RetryableError)
    assert isinstance(busy, RetryableError)
    assert (answered.refused, lost.refused, not_running.refused, busy.refused) == (True, False, False, False)
    assert (answered.busy, lost.busy, busy.busy) == (False, False, True)


def test_settings_to_put_right_are_counted_and_listed() -> None:
    assert str(SettingsError(["a is 1", "b is 2"])).splitlines() == [
        "2 setting(s) must be corrected before the relay can start:",
        "  - a is 1",
        "  - b is 2",
    ]


def test_a_temporary_error_asks_for_no_pause_by_default() -> None:
    assert (RetryableError("x").busy, RetryableError("x").refused) == (False, False)


def test_the_condition_is_the_one_of_the_error_within() -> None:
    assert amqp_condition(ServiceBusError("no", error=outcome(b"amqp:not-allowed"))) == "amqp:not-allowed"
    assert amqp_condition(ServiceBusError("no", error=link(SIZE))) == "amqp:link:message-size-exceeded"
    assert amqp_condition(ServiceBusError("no", error=ValueError("no"))) is None
    assert amqp_condition(ServiceBusError("no")) is None
    assert amqp_condition(ValueError("no")) is None


def test_an_error_is_described_by_its_kind_and_its_first_line() -> None:
    assert first_line(ValueError("one\ntwo\nthree")) == "ValueError: one"
    assert first_line(ValueError()) == "ValueError"


def test_what_was_classified_stays_what_it_is() -> None:
    error = PoisonError("no", condition="c")

    assert classify(error) is error


def test_each_remedy_is_that_of_its_error() -> None:
    assert "status to Active" in str(classify(MessagingEntityDisabledError()))
    assert "Check SERVICEBUS: the namespace" in str(classify(ServiceBusAuthenticationError()))
    assert "SERVICEBUS__clientId" in str(classify(ClientAuthenticationError("no token")))
    assert "Make room in the topic that SERVICEBUS_TOPIC names" in str(classify(ServiceBusQuotaExceededError()))
    assert "RELAY_SEND_TIMEOUT_S" in str(classify(TimeoutError()))


def test_throttling_with_a_condition_of_content_within_a_link_sets_nothing_aside() -> None:
    busy = classify(ServiceBusServerBusyError(error=link(b"com.microsoft:server-busy")))

    assert isinstance(busy, RetryableError)
    assert (busy.busy, busy.refused) == (True, False)


def test_a_queue_without_room_is_named_as_the_queue_that_it_is() -> None:
    cause = ServiceBusQuotaExceededError(error=outcome(b"amqp:resource-limit-exceeded"))

    error = classify(cause).naming(DestinationSettings("destinations.m.queue", "ORDERS_BUS", "queue"))

    assert isinstance(error, RetryableError)
    assert not error.refused
    assert "Make room in the queue that destinations.m.queue names" in str(error)
    assert "topic" not in str(error).lower()
