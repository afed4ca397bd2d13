"""Settings: env files, local.settings.json, expressions, connections."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

from outbox_emulators.functions.connections import Connections
from outbox_emulators.functions.environment import applied, read_env_file, read_local_settings
from outbox_emulators.functions.errors import HostError
from outbox_emulators.functions.settings import Connection, Settings


def test_an_env_file_is_read_as_source_and_env_file_options_read_it(tmp_path: Path) -> None:
    file = tmp_path / "local.env"
    file.write_text(
        "# made by the local stack\n"
        "COSMOS='AccountEndpoint=http://127.0.0.1:8081/;AccountKey=a${b}==;'\n"
        "export TOPIC=events\n"
        '\nQUOTED="two words" # why\n'
        "EMPTY=\n"
    )
    assert read_env_file(file) == {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:8081/;AccountKey=a${b}==;",
        "TOPIC": "events",
        "QUOTED": "two words",
        "EMPTY": "",
    }


def test_an_env_file_that_is_not_there_or_has_bare_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"none\.env does not exist"):
        read_env_file(tmp_path / "none.env")
    (tmp_path / "bare.env").write_text("JUST_A_NAME\n")
    with pytest.raises(HostError, match="JUST_A_NAME"):
        read_env_file(tmp_path / "bare.env")


def test_the_values_of_local_settings_are_read(tmp_path: Path) -> None:
    assert read_local_settings(tmp_path) == {}
    (tmp_path / "local.settings.json").write_text(json.dumps({"Values": {"A": "1", "B": True, "C": 2}}))
    assert read_local_settings(tmp_path) == {"A": "1", "B": "true", "C": "2"}


@pytest.mark.parametrize("content", ["{", "[]", '{"Values": []}', '{"IsEncrypted": true, "Values": {}}'])
def test_unreadable_local_settings_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "local.settings.json").write_text(content)
    with pytest.raises(HostError, match=r"local\.settings\.json"):
        read_local_settings(tmp_path)


def test_given_settings_win_over_the_environment_and_defaults_fill_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "environment")
    monkeypatch.setenv("PRESENT", "environment")
    monkeypatch.delenv("ABSENT", raising=False)
    with applied({"GIVEN": "given"}, defaults={"PRESENT": "default", "ABSENT": "default"}) as environment:
        assert [environment[name] for name in ("GIVEN", "PRESENT", "ABSENT")] == [
            "given",
            "environment",
            "default",
        ]
        assert os.environ["GIVEN"] == "given"
    assert (os.environ["GIVEN"], os.environ.get("ABSENT")) == ("environment", None)


def test_the_time_zone_follows_the_settings() -> None:
    with applied({"TZ": "Asia/Tokyo"}, defaults={}):
        assert time.localtime().tm_gmtoff == 9 * 3_600


def test_expressions_are_resolved_within_text_and_without_regard_to_case() -> None:
    settings = Settings({"Name": "data", "OTHER": "x"})
    assert settings.resolve("a-%NAME%-%other%") == "a-data-x"
    assert settings.missing("%NAME% %NOT_THERE%") == ["NOT_THERE"]
    with pytest.raises(HostError, match="set NOT_THERE"):
        settings.resolve("%NOT_THERE%")


def test_a_connection_is_a_connection_string_or_an_identity_family() -> None:
    family = {"A__accountEndpoint": "https://a/", "A__credential": "managedidentity", "A__clientId": "id"}
    assert Settings(family).connection("A") == Connection(None, "https://a/", "managedidentity", "id")
    assert Settings({"B": "AccountEndpoint=…"}).connection("B").connection_string == "AccountEndpoint=…"
    assert Settings({"AzureWebJobsC": "prefixed", "C": "plain"}).connection("C").connection_string == "prefixed"
    with pytest.raises(HostError, match=r"'D' is not set: set D .* or D__accountEndpoint"):
        Settings(family).connection("D")


@pytest.mark.parametrize(
    ("credential", "expected"), [("managedidentity", ManagedIdentityCredential), (None, DefaultAzureCredential)]
)
async def test_an_identity_family_is_used_through_azure_identity(
    credential: str | None, expected: type[object]
) -> None:
    connection = Connection(None, "https://account.documents.example/", credential, None)
    async with AsyncExitStack() as stack:
        connections = Connections(Settings({}), stack, asyncio.Event())
        assert isinstance(await connections._credential(connection), expected)


async def test_an_unusable_connection_string_is_reported_with_its_name() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(HostError, match="'COSMOS' is not usable"):
            await Connections(Settings({"COSMOS": "nonsense"}), stack, asyncio.Event()).client("COSMOS")
