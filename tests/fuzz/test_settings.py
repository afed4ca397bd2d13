"""Any environment gives settings, or an error that names each wrong one and contains no secret."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.config.settings import Settings
from relay.core.errors import SettingsError
from tests.fuzz.budget import DOCUMENTS, tried, trying

SECRET = "c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA=="

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats().map(str),
    st.sampled_from(["1_000", "٣", "0x10", "1e3", "9" * 5000, " 5 ", "+1", "-0", "", "inf"]),
)
_PARTS = st.lists(
    st.sampled_from(
        [
            "AccountEndpoint=https://a.documents.azure.com:443/",
            f"AccountKey={SECRET}",
            "Endpoint=sb://n.servicebus.windows.net/",
            "SharedAccessKeyName=k",
            f"SharedAccessKey={SECRET}",
            f"accountkey={SECRET}",
            SECRET,
            "=",
            "",
        ]
    ),
    max_size=5,
).map(";".join)
_ADDRESSES = st.one_of(
    st.sampled_from(
        ["https://a.documents.azure.com:443/", "n.servicebus.windows.net", "http://[", "//", "sb://n/"]
    ),
    _TEXT,
)
_VALUES: dict[str, st.SearchStrategy[str]] = {
    "COSMOS": _PARTS,
    "COSMOS__accountEndpoint": _ADDRESSES,
    "COSMOS__credential": st.sampled_from(["managedidentity", "ManagedIdentity", "secret", " "]),
    "COSMOS__clientId": _TEXT,
    "COSMOS_DATABASE": _TEXT,
    "COSMOS_CONTAINER": st.sampled_from(["data", "leases", "other", ""]),
    "COSMOS_LEASE_CONTAINER": st.sampled_from(["leases", "data"]),
    "COSMOS_QUARANTINE_CONTAINER": _TEXT,
    "SERVICEBUS": _PARTS,
    "SERVICEBUS__fullyQualifiedNamespace": _ADDRESSES,
    "SERVICEBUS__credential": st.sampled_from(["managedidentity", ""]),
    "SERVICEBUS__clientId": _TEXT,
    "SERVICEBUS_TOPIC": _TEXT,
    "RELAY_EVENT_TYPE": _TEXT,
    "RELAY_MAX_ITEMS": _NUMBERS,
    "RELAY_POLL_DELAY_MS": _NUMBERS,
    "RELAY_SENDERS": _NUMBERS,
    "RELAY_SEND_TIMEOUT_S": _NUMBERS,
    "RELAY_MESSAGE_FORMAT": st.sampled_from(["plain", "cloudevents", "CloudEvents"]) | _TEXT,
    "RELAY_CLOUDEVENTS_SOURCE": _TEXT,
    # Nearly the names of settings, and names of others.
    "RELAY_SENDER": _TEXT,
    "COSMOS_CONTAINERS": _PARTS,
    "SERVICEBUS_TOPICS": _PARTS,
    "RELAY_": _TEXT,
    "PATH": _PARTS,
}
_ENVIRONMENTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=_VALUES)


def read(environment: dict[str, str]) -> Settings | SettingsError:
    """The settings, or what is wrong with them; anything else is raised."""
    tried["environments"] += 1
    try:
        return Settings.from_environment(environment)
    except SettingsError as error:
        return error


@trying(DOCUMENTS // 10)
@given(environment=_ENVIRONMENTS)
def test_an_environment_gives_settings_or_an_error_that_names_what_is_wrong_and_no_key(
    environment: dict[str, str],
) -> None:
    found = read(environment)

    assert SECRET not in repr(found)
    assert SECRET not in str(found)
    if isinstance(found, SettingsError):
        assert found.problems
        for problem in found.problems:
            assert problem.startswith(("COSMOS", "SERVICEBUS", "RELAY_"))
            assert problem in str(found)
    else:
        assert 1 <= found.policy.max_items <= 100_000
        assert found.servicebus.senders is None or 1 <= found.servicebus.senders <= 256
        assert 0 < found.servicebus.send_timeout_s <= 3600
        for connection in (found.in_cosmos.connection, found.servicebus.connection):
            assert (connection.connection_string is None) != (connection.address is None)


@trying(DOCUMENTS // 20)
@given(value=_NUMBERS | _TEXT, name=st.sampled_from(["RELAY_MAX_ITEMS", "RELAY_SENDERS", "RELAY_SEND_TIMEOUT_S"]))
def test_one_wrong_number_is_the_only_thing_named(value: str, name: str) -> None:
    sound = {
        "COSMOS": f"AccountEndpoint=https://a/;AccountKey={SECRET}",
        "SERVICEBUS": f"Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey={SECRET}",
    }

    found = read({**sound, name: value})

    if isinstance(found, SettingsError):
        assert [problem.split(" is ")[0] for problem in found.problems] == [name]
