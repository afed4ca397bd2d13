"""The trigger's properties, with their defaults and expressions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from outbox_emulators.functions.errors import HostError
from outbox_emulators.functions.settings import Settings
from outbox_emulators.functions.trigger import CosmosTrigger, LeaseOverrides, LeaseTimings


def _trigger(
    settings: dict[str, str] | None = None, overrides: LeaseOverrides | None = None, **changed: Any
) -> CosmosTrigger:
    binding = {"connection": "COSMOS", "databaseName": "outbox", "containerName": "data", **changed}
    return CosmosTrigger.from_binding("relay", binding, Settings(settings or {}), overrides or LeaseOverrides())


def test_the_defaults_are_the_extensions() -> None:
    trigger = _trigger()
    assert trigger.feed_poll_delay_s == 5.0
    assert trigger.max_items_per_invocation is None
    assert trigger.start_from == "Now"
    assert trigger.timings == LeaseTimings(13.0, 17.0, 60.0)
    assert (trigger.lease_connection, trigger.lease_database, trigger.lease_container) == (
        "COSMOS",
        "outbox",
        "leases",
    )
    assert not trigger.create_lease_container


def test_zero_means_not_set() -> None:
    trigger = _trigger(feedPollDelay=0, maxItemsPerInvocation=0, leaseRenewInterval=0)
    assert (trigger.feed_poll_delay_s, trigger.max_items_per_invocation, trigger.timings.renew_s) == (
        5.0,
        None,
        17.0,
    )


def test_overrides_come_before_what_the_trigger_says() -> None:
    trigger = _trigger(overrides=LeaseOverrides(100, 200, 300), leaseAcquireInterval=9_000)
    assert trigger.timings == LeaseTimings(0.1, 0.2, 0.3)


def test_expressions_are_resolved_in_names() -> None:
    trigger = _trigger(
        {"DB": "d", "C": "c", "L": "l"}, databaseName="%DB%", containerName="%C%", leaseContainerName="%L%"
    )
    assert (trigger.database, trigger.container, trigger.lease_database, trigger.lease_container) == (
        "d",
        "c",
        "d",
        "l",
    )


def test_all_missing_settings_are_named_in_one_error() -> None:
    with pytest.raises(HostError, match=r"NO_DB \(for databaseName\), NO_C \(for containerName\)"):
        _trigger(databaseName="%NO_DB%", containerName="%NO_C%")


def test_numbers_cannot_be_expressions() -> None:
    with pytest.raises(HostError, match="maxItemsPerInvocation is '%MAX%'"):
        _trigger({"MAX": "100"}, maxItemsPerInvocation="%MAX%")


@pytest.mark.parametrize(
    "text",
    [
        "2021-02-16T15:19:29+01:00",
        "2021-02-16T14:19:29Z",
        "2021-02-16T14:19:29.000Z",
        "Tue, 16 Feb 2021 14:19:29 GMT",
    ],
)
def test_a_start_time_with_a_zone_is_read_as_utc(text: str) -> None:
    trigger = _trigger(startFromTime=text)
    assert trigger.start_from == datetime(2021, 2, 16, 14, 19, 29, tzinfo=UTC)
    assert trigger.start_refused is None


@pytest.mark.parametrize("text", ["2021-02-16T14:19:29", "2021-02-16", "2021-02-16T14:19:29.123"])
def test_a_start_time_without_a_zone_is_refused_when_the_listener_starts(text: str) -> None:
    refused = _trigger(startFromTime=text).start_refused
    assert refused is not None
    assert "DateTimeKind.Unspecified" in refused
    assert text in refused


def test_what_is_no_time_or_is_set_twice_is_an_error() -> None:
    with pytest.raises(HostError, match="startFromTime"):
        _trigger(startFromTime="yesterday")
    with pytest.raises(HostError, match="only one of"):
        _trigger(startFromTime="2021-02-16T14:19:29Z", startFromBeginning=True)
