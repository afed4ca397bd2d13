"""Input of the function: the trigger's properties with their defaults, and documents as JSON text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import azure.functions as func
import pytest
from azure.functions.meta import Datum
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_relay.emulators.functions.documents import PageWithheld, from_text, to_text
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.settings import Settings
from outbox_relay.emulators.functions.trigger import CosmosTrigger, LeaseOverrides, LeaseTimings

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_TEXT, children, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(_TEXT, _JSON), max_size=3))
def test_documents_reach_the_function_value_for_value(documents: list[dict[str, object]]) -> None:
    decoded = from_text(to_text(documents, rewrite_dates=False))
    assert isinstance(decoded, func.DocumentList)
    assert [dict(document) for document in decoded] == documents


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, "1180591620717411303424"),
        (-(10**29), "-100000000000000000000000000000"),
        (float("1E400"), '"Infinity"'),
        (float("-1E400"), '"-Infinity"'),
        (1e22, "1E+22"),
        (1e15, "1E+15"),
        (1234567890123456.0, "1234567890123456.0"),
        (0.0001, "0.0001"),
        (2.5e-7, "2.5E-07"),
        (-1.0, "-1.0"),
    ],
)
def test_numbers_are_spelled_as_the_host_spells_them(value: float, text: str) -> None:
    assert to_text([{"n": value, "m": [value]}], rewrite_dates=False) == f'[{{"n":{text},"m":[{text}]}}]'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_keeps_its_value_however_it_is_spelled(value: float) -> None:
    text = to_text([{"n": value, "m": 1e300}], rewrite_dates=False)
    assert json.loads(text) == [{"n": value, "m": 1e300}]


def test_what_looks_like_a_number_within_a_string_stays_as_it_is() -> None:
    documents = [{"n": "a:1e5,Infinity,[1000000000000000.0"}]
    assert json.loads(to_text(documents, rewrite_dates=False)) == documents


def nested(levels: int) -> dict[str, Any]:
    """A document of that many levels, arrays and objects in turn, the innermost empty."""
    value: Any = {} if levels % 2 else []
    for level in range(levels - 1):
        value = {"a": value} if isinstance(value, list) or level == levels - 2 else [value]
    document: dict[str, Any] = value
    return document


def test_a_document_of_63_levels_passes_and_one_of_64_withholds_the_page() -> None:
    assert json.loads(to_text([{}, nested(63)], rewrite_dates=False))[1] == nested(63)
    with pytest.raises(PageWithheld, match="MaxDepth of 64 has been exceeded"):
        to_text([{}, nested(64)], rewrite_dates=False)


def test_an_integer_of_380_characters_passes_and_a_longer_one_withholds_the_page() -> None:
    assert to_text([{"n": 10**379}], rewrite_dates=False) == f'[{{"n":{10**379}}}]'
    for number in (10**380, -(10**379), 10**400):
        with pytest.raises(PageWithheld, match="too large to parse"):
            to_text([{"n": {"m": [number]}}], rewrite_dates=False)


def test_half_a_surrogate_pair_is_replaced_as_grpc_does() -> None:
    assert from_text(to_text([{"s": "a\ud800b"}], rewrite_dates=False))[0]["s"] == "a\ufffdb"


def test_the_converter_that_the_app_registered_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Converter:
        @classmethod
        def decode(cls, data: Datum, *, trigger_metadata: object) -> tuple[str | None, str]:
            return data.type, data.value

    registry = func.get_binding_registry()  # type: ignore[no-untyped-call]
    monkeypatch.setitem(registry._bindings, "cosmosDBTrigger", Converter)
    decoded: object = from_text("[1]")
    assert decoded == ("string", "[1]")


@pytest.mark.parametrize(
    ("rewrite", "expected"), [(True, "2019-01-01T00:00:00Z"), (False, "2019-01-01T00:00:00.00Z")]
)
def test_dates_are_rewritten_only_where_asked(rewrite: bool, expected: str) -> None:
    assert from_text(to_text([{"at": "2019-01-01T00:00:00.00Z"}], rewrite_dates=rewrite))[0]["at"] == expected


# The trigger's properties, with their defaults and expressions


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
