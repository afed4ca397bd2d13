"""The connections of the samples."""

from __future__ import annotations

import pytest

from samples.contacts.settings import Connection, SettingMissing, open_container


def test_a_connection_string_is_used_as_it_is() -> None:
    assert Connection.named("COSMOS", "accountEndpoint", {"COSMOS": "x"}).connection_string == "x"


def test_an_address_is_used_with_an_identity() -> None:
    environment = {
        "COSMOS__accountEndpoint": "https://a",
        "COSMOS__credential": "managedidentity",
        "COSMOS__clientId": "7",
    }

    assert Connection.named("COSMOS", "accountEndpoint", environment) == Connection(None, "https://a", True, "7")


async def test_an_error_names_the_missing_setting() -> None:
    with pytest.raises(SettingMissing, match="Set COSMOS to a connection string, or COSMOS__accountEndpoint"):
        async with open_container({"COSMOS": ""}):
            pass
