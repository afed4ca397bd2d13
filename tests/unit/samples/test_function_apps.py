"""The function apps of the samples, called as the worker does, their connections, and conditional requests."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from samples.contacts.api.conditions import EntityTags
from samples.contacts.consumer.directory import Directory
from samples.contacts.settings import Connection, SettingMissing, open_container

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "contacts"


def function_app(folder: str) -> ModuleType:
    """Import a fresh copy of a folder's function_app.py."""
    spec = importlib.util.spec_from_file_location(f"function_app_{folder}", SAMPLE / folder / "function_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def only_function(module: ModuleType) -> tuple[Any, dict[str, Any]]:
    """The app's only function, and its trigger as the worker reports it to the host."""
    (function,) = module.app.get_functions()
    bindings = json.loads(function.get_function_json())["bindings"]
    return function, next(binding for binding in bindings if "trigger" in binding["type"].lower())


class Message:
    """A fake Service Bus message with the parts the function uses."""

    def __init__(self, sequence: int, **data: Any) -> None:
        self._data = data
        self.application_properties = {"sequence": sequence}

    def get_body(self) -> bytes:
        return json.dumps(self._data).encode()


def test_the_consumer_has_a_topic_trigger_with_sessions() -> None:
    _, trigger = only_function(function_app("functions_consumer"))

    assert trigger["type"] == "serviceBusTrigger"
    assert trigger["isSessionsEnabled"] is True
    assert trigger["connection"] == "SERVICEBUS"
    assert trigger["topicName"] == "%SERVICEBUS_TOPIC%"
    assert trigger["subscriptionName"] == "%SERVICEBUS_SUBSCRIPTION%"


async def test_the_consumer_stores_the_directory_in_the_configured_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "directory.sqlite"
    monkeypatch.setenv("DIRECTORY", str(path))
    module = function_app("functions_consumer")
    handler = only_function(module)[0].get_user_function()
    event = {"action": "ContactCreatedEvent", "contactId": "c1", "version": 1, "email": "a@b", "description": ""}

    for sequence in (1, 1, 3):
        await handler(Message(sequence, **event, name={"firstName": "J"}, company={}))
    with pytest.raises(Exception, match="has no name"):
        await handler(Message(4, **event))
    module.directory().close()

    with Directory(path) as directory:
        assert [contact["id"] for contact in directory.contacts()] == ["c1"]
        assert list(directory.gaps) == [("c1", 2)]


def test_the_api_is_one_http_function_for_all_routes_and_methods() -> None:
    _, trigger = only_function(function_app("functions_api"))

    assert (trigger["type"], trigger["route"], trigger["authLevel"]) == ("httpTrigger", "/{*route}", "FUNCTION")
    assert {str(method) for method in trigger["methods"]} >= {"GET", "POST", "PUT", "PATCH", "DELETE"}


def test_the_sample_settings_contain_every_setting_that_the_apps_use() -> None:
    values = {
        folder: json.loads((SAMPLE / folder / "local.settings.sample.json").read_text())["Values"]
        for folder in ("functions_api", "functions_consumer")
    }

    assert {"COSMOS", "COSMOS_DATABASE", "COSMOS_CONTAINER"} <= values["functions_api"].keys()
    consumer = {"SERVICEBUS", "SERVICEBUS_TOPIC", "SERVICEBUS_SUBSCRIPTION", "DIRECTORY"}
    assert consumer <= values["functions_consumer"].keys()


def test_the_api_has_no_route_prefix() -> None:
    host = json.loads((SAMPLE / "functions_api" / "host.json").read_text())

    assert host["extensions"]["http"]["routePrefix"] == ""


# The connections of the samples


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


# Comparisons of If-Match and If-None-Match, RFC 9110


@pytest.mark.parametrize(
    ("header", "strongly", "weakly"),
    [
        ('"a"', True, True),
        ('W/"a"', False, True),
        ('"b", "a"', True, True),
        ('"b" ,W/"a"', False, True),
        ('"b"', False, False),
        ('"A"', False, False),
        ("*", True, True),
    ],
)
def test_a_header_is_compared_strongly_or_weakly(header: str, strongly: bool, weakly: bool) -> None:
    tags = EntityTags.parse(header)

    assert (tags.match_strongly('"a"'), tags.match_weakly('"a"')) == (strongly, weakly)


def test_an_empty_header_matches_nothing() -> None:
    tags = EntityTags.parse("")

    assert not tags.match_weakly('"a"')
    assert tags.single is None


def test_a_tag_is_single_only_alone() -> None:
    assert EntityTags.parse('W/"a"').single == '"a"'
    assert EntityTags.parse('"a", "b"').single is None
    assert EntityTags.parse("*").single is None


@pytest.mark.parametrize("header", ["a", '"a', "W/a", "**", ", "])
def test_an_invalid_tag_matches_nothing(header: str) -> None:
    tags = EntityTags.parse(header)

    assert not tags.match_weakly('"a"')
    assert tags.single is None
