"""Connection strings: their parts by name, and their secrets nowhere else."""

from __future__ import annotations

import pytest

from relay.clients import ConnectionString

NAMESPACE = ConnectionString(
    "Endpoint=sb://n.test/;SharedAccessKeyName=k;SharedAccessKey=c2Vj+/cmV0==;EntityPath=t"
)


@pytest.mark.parametrize("name", ["Endpoint", "endpoint", "ENDPOINT"])
def test_a_part_is_found_by_its_name_in_any_case(name: str) -> None:
    assert NAMESPACE.get(name) == "sb://n.test/"


def test_a_value_may_contain_equals_signs() -> None:
    assert NAMESPACE.get("SharedAccessKey") == "c2Vj+/cmV0=="


def test_spaces_around_names_and_values_do_not_count() -> None:
    assert ConnectionString(" Endpoint = sb://n ; ").parts == {"Endpoint": "sb://n"}


@pytest.mark.parametrize("text", ["", ";;", "Endpoint", "Endpoint=", "Endpoint= ;", "EndpointAddress=sb://n"])
def test_a_part_without_a_value_is_missing(text: str) -> None:
    assert ConnectionString(text).get("Endpoint") is None


def test_of_a_repeated_part_the_last_one_counts() -> None:
    assert ConnectionString("Endpoint=a;endpoint=b").get("Endpoint") == "b"


@pytest.mark.parametrize(
    ("text", "emulator"),
    [
        ("Endpoint=sb://n;UseDevelopmentEmulator=true", True),
        ("Endpoint=sb://n;usedevelopmentemulator = true;", True),
        ("Endpoint=sb://n;UseDevelopmentEmulator=false", False),
        ("Endpoint=sb://n;UseDevelopmentEmulator", False),
        ("Endpoint=sb://UseDevelopmentEmulator=true", False),
        ("", False),
    ],
)
def test_only_its_own_part_makes_it_an_emulators(text: str, emulator: bool) -> None:
    assert ConnectionString(text).uses_emulator is emulator


def test_another_endpoint_keeps_the_credentials() -> None:
    credentials = NAMESPACE.without(["endpoint", "EntityPath"])

    moved = ConnectionString.build({"Endpoint": "sb://m.test", **credentials})

    assert moved.text == "Endpoint=sb://m.test;SharedAccessKeyName=k;SharedAccessKey=c2Vj+/cmV0=="


def test_no_value_is_shown() -> None:
    for shown in (repr(NAMESPACE), str(NAMESPACE), f"{NAMESPACE}"):
        assert shown == "ConnectionString(Endpoint, SharedAccessKeyName, SharedAccessKey, EntityPath)"
