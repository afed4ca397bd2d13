"""How long blobs are needed, as `check` says it."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from outbox_relay.operator.cli.servicebus_checks import ServiceBusFacts
from outbox_relay.operator.large_check import _kept
from relay.backends.findings import Gap, Level, Why

GAP = Gap(Why.FORBIDDEN, "no")


def facts(topic: timedelta | str | None, *subscriptions: timedelta | None) -> ServiceBusFacts:
    each: list[Any] = [SimpleNamespace(default_message_time_to_live=life) for life in subscriptions]
    made: Any = SimpleNamespace(default_message_time_to_live=topic)
    return ServiceBusFacts(made, each, 0)


@pytest.mark.parametrize(
    ("read", "longest"),
    [
        (facts(timedelta(14), timedelta(1), timedelta(3)), timedelta(3)),
        (facts(timedelta(2), timedelta(1), timedelta(3)), timedelta(2)),
        (facts("P10675199DT2H48M5.4775807S", timedelta(3)), timedelta(3)),
        (facts(timedelta(2)), timedelta(2)),
        (facts(None, timedelta(3)), None),
        (facts(timedelta(2), None), None),
        (ServiceBusFacts(GAP, GAP, 0), None),
    ],
)
def test_a_message_lives_no_longer_than_its_topic_and_its_subscription_say(
    read: ServiceBusFacts, longest: timedelta | None
) -> None:
    assert read.longest_life == longest


@pytest.mark.parametrize(
    ("longest", "said", "enough"),
    [
        (timedelta(14), "keeps its messages for P14D", "blobs for longer than P14D, and as long again"),
        (timedelta.max, "keeps its messages without a limit", "give the subscriptions a time to live"),
        (None, "cannot be read either", "the time to live of every subscription"),
    ],
)
def test_the_rule_that_cannot_be_read_is_named_with_what_it_has_to_outlast(
    longest: timedelta | None, said: str, enough: str
) -> None:
    finding = _kept("RELAY_BLOB_CONTAINER 'large-events'", "account1", longest)

    assert finding.level is Level.WARNING
    assert said in finding.what
    assert finding.remedy is not None
    assert enough in finding.remedy
    assert "management-policy show -g GROUP --account-name account1" in finding.remedy
