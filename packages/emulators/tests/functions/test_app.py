"""Loading apps: what is run and what is refused; their settings, and host.json."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

from outbox_relay.emulators.functions.app import importable, load_functions
from outbox_relay.emulators.functions.connections import Connections
from outbox_relay.emulators.functions.environment import applied, read_env_file, read_local_settings
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.host_json import HostConfiguration, parse_timespan
from outbox_relay.emulators.functions.settings import Connection, Settings
from outbox_relay.emulators.functions.singleton import LockTimings

_TRIGGER = 'arg_name="documents", connection="COSMOS", database_name="d", container_name="c"'
_HEAD = "import azure.functions as func\n\napp = func.FunctionApp()\n\n"


def _app(directory: Path, body: str, head: str = _HEAD) -> Path:
    (directory / "function_app.py").write_text(head + body)
    return directory


def test_a_function_is_loaded_with_its_binding_and_retry_policy(tmp_path: Path) -> None:
    body = f"""
@app.function_name("publish")
@app.cosmos_db_trigger({_TRIGGER}, max_items_per_invocation=5)
@app.retry(strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:02")
async def relay(documents: func.DocumentList, context) -> None: ...
"""
    (function,) = load_functions(_app(tmp_path, body))
    assert (function.name, function.is_async, function.takes_context) == ("publish", True, True)
    assert (function.parameter, function.directory) == ("documents", str(tmp_path))
    assert function.trigger["maxItemsPerInvocation"] == 5
    assert function.retry_policy is not None
    assert (function.retry_policy.max_retry_count, function.retry_policy.minimum_s) == (-1, 2.0)


def test_the_advice_of_the_library_on_http_is_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_functions(_app(tmp_path, f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents): ...\n"))
    assert "Auth level" not in caplog.text
    logging.warning("Another warning at the root")
    assert "Another warning" in caplog.text


def test_an_app_is_loaded_afresh_each_time(tmp_path: Path) -> None:
    body = f"@app.cosmos_db_trigger({_TRIGGER})\ndef {{}}(documents): ...\n"
    assert load_functions(_app(tmp_path, body.format("first")))[0].name == "first"
    assert load_functions(_app(tmp_path, body.format("second")))[0].name == "second"


def test_an_app_can_import_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a_module_beside_the_app.py").write_text("NAME = 'beside'\n")
    head = "from a_module_beside_the_app import NAME\n" + _HEAD
    body = f"@app.function_name(NAME)\n@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents): ...\n"
    with importable(tmp_path):
        assert load_functions(_app(tmp_path, body, head))[0].name == "beside"
    assert str(tmp_path) not in sys.path


def test_functions_with_other_triggers_are_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = f"""
@app.queue_trigger(arg_name="order", queue_name="orders", connection="Q")
def take(order): ...

@app.cosmos_db_trigger({_TRIGGER})
def relay(documents): ...
"""
    with caplog.at_level(logging.WARNING, "outbox_relay.emulators.functions"):
        assert [function.name for function in load_functions(_app(tmp_path, body))] == ["relay"]
    assert "Function take is not run: this host has no queueTrigger" in caplog.text


def test_a_function_with_a_timer_is_loaded(tmp_path: Path) -> None:
    body = """
@app.timer_trigger(arg_name="timer", schedule="0 * * * * *", run_on_startup=True, use_monitor=False)
def tick(timer: func.TimerRequest) -> None: ...
"""
    (function,) = load_functions(_app(tmp_path, body))
    assert (function.name, function.parameter, function.is_async) == ("tick", "timer", False)
    assert function.trigger["schedule"] == "0 * * * * *"
    assert (function.trigger["runOnStartup"], function.trigger["useMonitor"]) == (True, False)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("", "no function with a cosmosDBTrigger"),
        ('@app.route(route="orders")\ndef orders(req: func.HttpRequest): ...\n', "no function with"),
        (
            '@app.timer_trigger(arg_name="t", schedule="0 * * * * *")\ndef tick(t: str): ...\n',
            "write func.TimerRequest",
        ),
        (f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(docs): ...\n", "binds 'documents'"),
        (f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents, extra): ...\n", "no binding gives it extra"),
        (f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents: int): ...\n", "annotated <class 'int'>"),
        (
            f"@app.cosmos_db_trigger({_TRIGGER})\n"
            '@app.retry(strategy="fixed_delay", max_retry_count="x", delay_interval="00:00:01")\n'
            "def relay(documents): ...\n",
            "function relay: retry max_retry_count is 'x'",
        ),
        (
            f"@app.cosmos_db_trigger({_TRIGGER})\n"
            '@app.queue_output(arg_name="out", queue_name="q", connection="Q")\n'
            "def relay(documents, out): ...\n",
            r"not queue \(out\)",
        ),
        ("raise RuntimeError('no settings')\n", "cannot be loaded: RuntimeError: no settings"),
        ("other = func.FunctionApp()\n", "exactly one FunctionApp"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(tmp_path: Path, body: str, named: str) -> None:
    with pytest.raises(HostError, match=named):
        load_functions(_app(tmp_path, body))


def test_a_directory_without_a_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"function_app\.py does not exist"):
        load_functions(tmp_path)


# Settings: env files, local.settings.json, expressions, connections


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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first first", "last first"])
def test_settings_of_two_hosts_may_end_in_any_order(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    monkeypatch.setenv("GIVEN", "environment")
    monkeypatch.delenv("ABSENT", raising=False)
    stacks = [ExitStack(), ExitStack()]
    for number, stack in enumerate(stacks):
        both = {"GIVEN": f"host {number}", "ABSENT": f"host {number}"}
        assert stack.enter_context(applied(both, defaults={})).items() >= both.items()

    stacks[order[0]].close()
    assert (os.environ["GIVEN"], os.environ["ABSENT"]) == (f"host {order[1]}", f"host {order[1]}")

    stacks[order[1]].close()
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


# host.json and the durations in it


def _read(directory: Path, content: dict[str, Any]) -> HostConfiguration:
    (directory / "host.json").write_text(json.dumps({"version": "2.0", **content}))
    return HostConfiguration.from_directory(directory)


def _with_dates(handling: str) -> dict[str, Any]:
    return {"extensions": {"cosmosDB": {"serializerSettings": {"dateParseHandling": handling}}}}


def test_the_defaults_are_half_an_hour_and_rewritten_dates(tmp_path: Path) -> None:
    assert _read(tmp_path, {}) == HostConfiguration(1800.0, rewrite_dates=True, has_extension_bundle=False)


@pytest.mark.parametrize(
    ("handling", "version", "rewritten"),
    [
        ("None", None, False),
        ("none", None, False),
        ("Default", None, True),
        ("default", None, True),
        # An extension that may be too old rewrites dates whatever the setting says, and knows no wrong one.
        ("None", "[4.28.0, 5.0.0)", False),
        ("None", "[4.23.1, 5.0.0)", False),
        ("None", "4.24.0", False),
        ("None", "[4.23.0, 5.0.0)", True),
        ("None", "[4.*, 5.0.0)", True),
        ("None", "[3.3.0, 4.0.0)", True),
        ("DateTime", "[4.0.0, 4.21.0)", True),
    ],
)
def test_the_setting_and_the_extension_decide_whether_dates_are_rewritten(
    tmp_path: Path, handling: str, version: str | None, rewritten: bool
) -> None:
    bundle = {"extensionBundle": {"id": "any", "version": version}} if version else {}
    assert _read(tmp_path, {**_with_dates(handling), **bundle}).rewrite_dates is rewritten


@pytest.mark.parametrize(("timeout", "seconds"), [("00:05:00", 300.0), ("1.00:00:00", 86_400.0), ("-1", None)])
def test_the_function_timeout_is_read(tmp_path: Path, timeout: str, seconds: float | None) -> None:
    assert _read(tmp_path, {"functionTimeout": timeout}).function_timeout_s == seconds


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (_with_dates("DateTime"), "DateTime"),
        (_with_dates("DateTimeOffset"), "DateTimeOffset"),
        ({"functionTimeout": "00:00:00"}, "functionTimeout"),
        ({"functionTimeout": "five"}, "functionTimeout"),
        ({"functionTimeout": "24:00:00"}, "functionTimeout"),
        ({"version": "1.0"}, "version"),
        ({**_with_dates("None"), "extensionBundle": {"id": "any", "version": "(, 5.0.0)"}}, "write a range"),
        # No blob has a lease of such a time.
        ({"singleton": {"listenerLockPeriod": "00:00:14"}}, "listenerLockPeriod"),
        ({"singleton": {"listenerLockPeriod": "00:01:01"}}, "listenerLockPeriod"),
        ({"singleton": {"listenerLockPeriod": "x"}}, "listenerLockPeriod"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, content: dict[str, Any], named: str) -> None:
    with pytest.raises(HostError, match=named):
        _read(tmp_path, content)


def test_a_directory_without_host_json_is_no_function_app(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no function app"):
        HostConfiguration.from_directory(tmp_path)


def test_broken_json_is_reported(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("{")
    with pytest.raises(HostError, match="is not JSON"):
        HostConfiguration.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("01:02", 3_720.0), ("00:00:01.5", 1.5), ("-00:00:01", -1.0), ("2", 172_800.0)]
)
def test_timespans_are_read_as_dotnet_reads_them(text: str, seconds: float) -> None:
    assert parse_timespan(text, name="x") == seconds


def test_the_lock_of_a_timer_lasts_as_the_singleton_section_says(tmp_path: Path) -> None:
    assert _read(tmp_path, {}).locks == LockTimings(60.0, 60.0)
    section = {"listenerLockPeriod": "00:00:15", "listenerLockRecoveryPollingInterval": "00:02:00"}
    assert _read(tmp_path, {"singleton": section}).locks == LockTimings(15.0, 120.0)
