"""Secrets in malformed settings: an error that names the setting, and the secret nowhere."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import run as run_process

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_relay.operator.console.pages import ConsoleSettings
from outbox_relay.operator.console.resourcemanager import address_of
from relay.config.clients import (
    Connection,
    ManagementAddress,
    administration_connection,
    cosmos_client,
    servicebus_administration_client,
    servicebus_client,
)
from relay.config.secrecy import looks_secret, quoted
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.errors import SettingsError, UsageError
from tests.support.operators import relay_command
from tests.support.watchdog import WATCHDOG_S
from tests.unit.test_documented_names import settings_of

SECRET = "hidden"
KEY = b64encode(SECRET.encode() * 4).decode()
COSMOS = f"AccountEndpoint=https://127.0.0.1:1/;AccountKey={KEY}"
BLOBS = f"AccountName=a;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:1/a"
SERVICEBUS = f"Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=k;SharedAccessKey={SECRET}"

# Forms of a secret that somebody may paste into any setting, each with what must be shown nowhere.
SAMPLES = {
    "a connection string of Service Bus": (
        "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=aGlkZGVuaGlkZGVu",
        "aGlkZGVu",
    ),
    "a connection string of Cosmos DB": (f"AccountEndpoint=https://a/;AccountKey={KEY}", KEY),
    "a connection string of SQL Server": (
        "Server=tcp:s.database.windows.net;Database=d;Uid=u;Pwd=hidden",
        "hidden",
    ),
    "a connection string of PostgreSQL": ("host=h dbname=d user=u password=hidden", "hidden"),
    "a URL of PostgreSQL": ("postgresql://relay:hidden@h:5432/d", "hidden"),
    "a URL with a password": ("https://relay:hidden@a.documents.azure.com/", "hidden"),
    "a shared access signature": ("sr=https%3a%2f%2fn&sig=hidden%3d&se=1700000000&skn=k", "hidden"),
    "a key": ("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEH3LzHh2lnO2k=", "ob0N8A7Cgv30VRDJIWEH"),
    "a key without its padding": ("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEH3LzHh2lnO2k", "ob0N8A7Cgv30VRDJIWEH"),
    "a token": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJoaWRkZW4ifQ.c2lnbmF0dXJl", "eyJzdWIiOiJoaWRkZW4ifQ"),
    "a client secret": ("abc8Q~0123456789abcdefghijklmnopqrstuv", "0123456789abcdef"),
    "a key in hexadecimal digits": ("0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
}
# Each is of a connection, and holds a secret when it is right.
CONNECTIONS = {"COSMOS", "SQL", "SERVICEBUS", "BLOBS"}
SETTINGS = sorted(set(settings_of("docs/settings.md")) - CONNECTIONS)
ADDRESSES = {
    "COSMOS": ("accountEndpoint", "https://a.documents.azure.com:443/"),
    "SERVICEBUS": ("fullyQualifiedNamespace", "n.servicebus.windows.net"),
    "BLOBS": ("serviceUri", "https://a.blob.core.windows.net"),
}

_ENDPOINTS = [
    f"https://relay:{SECRET}@a.documents.azure.com:443/",
    f"https://{SECRET}@a.documents.azure.com",
    f"https://a.documents.azure.com/?key={SECRET}",
    f"https://a.documents.azure.com/#{SECRET}",
    f"https://a.documents.azure.com:{SECRET}/",
    f"https://[{SECRET}/",
    f"https:///{SECRET}",
    f"//{SECRET}",
    SECRET,
]
_MALFORMED = [
    *(("COSMOS", f"AccountEndpoint={endpoint};AccountKey={KEY}") for endpoint in _ENDPOINTS),
    ("COSMOS", f"AccountEndpoint=https://a/;AccountKey={SECRET}"),
    ("COSMOS", f"AccountEndpoint=https://a/;AccountKey=!{KEY}"),
    ("COSMOS", f"AccountEndpoint=https://a/;AccountKey={SECRET}é"),
    ("COSMOS", f"AccountEndpoint=https://a/;AccountKey={KEY};{SECRET}"),
    ("COSMOS", f"AccountEndpoint=https://a/;;AccountKey={KEY}"),
    ("COSMOS", f"AccountEndpoint =https://a/;AccountKey={KEY}"),
    ("COSMOS", f"AccountEndpoint=https://a/;accountkey={KEY}"),
    ("COSMOS", f"AccountEndpoint=https://a/;AccountKey= {KEY}"),
    ("COSMOS", f"AccountEndpoint=https://a/{SECRET}\r\nX: y;AccountKey={KEY}"),
    ("COSMOS", SECRET),
    ("COSMOS", f"{SECRET}=;AccountKey={SECRET}"),
    *(
        ("SERVICEBUS", f"Endpoint={endpoint};SharedAccessKeyName=k;SharedAccessKey={SECRET}")
        for endpoint in _ENDPOINTS
    ),
    ("SERVICEBUS", f"Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey={SECRET};{SECRET}"),
    ("SERVICEBUS", f"Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey={SECRET}\udcff"),
    ("SERVICEBUS", f"Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey={SECRET} {SECRET}"),
    ("SERVICEBUS", f"Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=k;SharedAccessSignature={SECRET}"),
    ("SERVICEBUS", f"Endpoint=sb://n/;SharedAccessSignature={SECRET}"),
    ("SERVICEBUS", SECRET),
    ("SQL", f"postgresql://relay:{SECRET}@{SECRET}@h/d"),
    ("SQL", f"postgresql://relay:{SECRET}%zz@h/d"),
    ("SQL", f"Server=s;PWD={SECRET}"),
    ("SQL", SECRET),
    ("COSMOS__accountEndpoint", f"https://relay:{SECRET}@a.documents.azure.com"),
    ("COSMOS__accountEndpoint", COSMOS),
    ("SERVICEBUS__fullyQualifiedNamespace", f"relay:{SECRET}@n.servicebus.windows.net"),
    ("SERVICEBUS__fullyQualifiedNamespace", SERVICEBUS),
]


def environment_with(name: str, value: str) -> dict[str, str]:
    """Settings of which only this one is malformed."""
    sound = {"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS}
    sound.pop(name.partition("__")[0], None)
    return {**sound, name: value}


@pytest.mark.parametrize(("name", "value"), _MALFORMED)
def test_a_malformed_value_is_an_error_that_names_the_setting_and_not_the_value(
    name: str, value: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(0), pytest.raises(SettingsError) as refused:
        Settings.from_environment(environment_with(name, value))

    (problem,) = refused.value.problems
    assert problem.startswith(f"{name} is no ")
    shown = "".join(traceback.format_exception(refused.value)) + caplog.text + "".join(capsys.readouterr())
    assert SECRET not in shown
    assert KEY not in shown


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("sample", SAMPLES)
async def test_a_secret_in_another_setting_is_shown_nowhere(
    name: str, sample: str, capsys: pytest.CaptureFixture[str]
) -> None:
    value, secret = SAMPLES[sample]
    environment = {"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS, "SQL": "postgresql://127.0.0.1:1/d", "BLOBS": BLOBS}
    service, _, member = name.partition("__")
    if member and service in ADDRESSES:
        # A connection string would make the other settings of the service count for nothing.
        del environment[service]
        environment |= {f"{service}__{suffix}": address for suffix, address in [ADDRESSES[service]]}

    run = await relay_command({**environment, name: value}, "check", "--json")

    assert run.code == 2, run.out
    assert f"{name} is " in run.out
    assert secret not in run.out + run.err + "".join(capsys.readouterr())


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(
    "line",
    [
        "topic = {}",
        "queue = {}",
        "connection = {}",
        "duplicate_window_s = {}",
        "[outboxes.x]\ncontainer = {}",
        "[outboxes.x]\nfeed = {}",
        "[outboxes.x]\ncontainer = 'c'\ntypes = [{}]",
        "[outboxes.x]\ncontainer = 'c'\nlease_container = {}",
    ],
)
def test_a_secret_in_the_file_is_an_error_that_does_not_show_it(sample: str, line: str, tmp_path: Path) -> None:
    value, secret = SAMPLES[sample]
    (tmp_path / "relay.toml").write_text(f"[destinations.m]\n{line.format(repr(value))}\n")

    with pytest.raises(SettingsError) as refused:
        read_streams({"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS}, app=tmp_path)

    assert secret not in str(refused.value)
    assert line.rpartition("\n")[2].partition(" ")[0] in str(refused.value)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_secret_in_a_setting_of_the_console_is_an_error_that_does_not_show_it(sample: str) -> None:
    value, secret = SAMPLES[sample]
    settings = Settings.from_environment({"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS})
    other = replace(settings, servicebus=replace(settings.servicebus, setting="ORDERS_BUS"))
    address = f"https://relay:hidden@management.azure.com/{value}/{{trace_id}}"
    reads: list[tuple[str, Callable[[str], object]]] = [
        ("CONSOLE_SHOW_DATA", lambda text: ConsoleSettings.from_environment({"CONSOLE_SHOW_DATA": text})),
        ("CONSOLE_TRACE_URL", lambda text: ConsoleSettings.from_environment({"CONSOLE_TRACE_URL": text})),
        ("CONSOLE_TOPIC_URL", lambda text: address_of(settings, {"CONSOLE_TOPIC_URL": text})),
        ("CONSOLE_ORDERS_BUS_URL", lambda text: address_of(other, {"CONSOLE_ORDERS_BUS_URL": text})),
    ]
    for name, read in reads:
        for text in (value, address):
            with pytest.raises(SettingsError, match=f"{name} is ") as refused:
                read(text)
            assert secret not in str(refused.value)
            assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "domain-events",
        "orders/Europe.West_1~2",
        "Production-Domain-Events-Of-The-Shop-In-Europe-2026",
        "0f8fad5bd9cb469fa165708a7a5c4f2e",
        "0f8fad5b-d9cb-469f-a165-708a7a5c4f2e",
        "outbox.domain_event",
        "/contacts",
        "https://example.com/contacts",
        "n.servicebus.windows.net",
    ],
)
def test_a_name_is_no_secret(text: str) -> None:
    assert not looks_secret(text)
    assert quoted(text) == repr(text)


@given(
    value=st.text(st.sampled_from("aZ0/+=:;@#?[]% é\0\udcff.-"), max_size=30),
    part=st.sampled_from(["https://127.0.0.1:1/", KEY, SECRET, "k"]),
)
@settings(max_examples=25)
def test_what_is_accepted_the_clients_take(value: str, part: str) -> None:
    for cosmos, servicebus in (
        (f"{COSMOS}{value}", SERVICEBUS),
        (COSMOS.replace(part, value), SERVICEBUS),
        (COSMOS, f"{SERVICEBUS}{value}"),
        (COSMOS, SERVICEBUS.replace(part, value)),
    ):
        with suppress(SettingsError):
            accepted = Settings.from_environment({"COSMOS": cosmos, "SERVICEBUS": servicebus})
            cosmos_client(accepted.in_cosmos.connection)
            servicebus_client(accepted.servicebus.connection)
            servicebus_administration_client(accepted.servicebus.connection)


async def test_sound_values_are_in_no_record_of_the_sdks(caplog: pytest.LogCaptureFixture) -> None:
    sound = Settings.from_environment({"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS})

    # Commands that ran in this process have set a level of this logger.
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="azure"):
        cosmos = cosmos_client(sound.in_cosmos.connection)
        with suppress(Exception):
            async with asyncio.timeout(2), cosmos:
                await cosmos.get_database_client("d").read()
        # Unlike the others, it stays open if it could not be entered.
        await cosmos.close()
        with suppress(Exception):
            async with (
                asyncio.timeout(2),
                servicebus_client(sound.servicebus.connection, retry_total=0) as client,
                client.get_topic_sender("t"),
            ):
                pass
        with suppress(Exception):
            async with (
                asyncio.timeout(2),
                servicebus_administration_client(sound.servicebus.connection) as administration,
            ):
                await administration.get_topic("t")

    assert "127.0.0.1" in caplog.text
    assert SECRET not in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "address",
    [
        f"Endpoint=sb://relay:{SECRET}@n/;SharedAccessKeyName=k;SharedAccessKey={SECRET}",
        f"Endpoint=sb://n/;SharedAccessKey={SECRET}",
        f"http://relay:{SECRET}@127.0.0.1:5300",
        f"http://127.0.0.1:{SECRET}",
    ],
)
def test_a_malformed_address_of_the_management_endpoint_is_not_shown(address: str) -> None:
    with pytest.raises(UsageError, match="--servicebus-admin") as refused:
        administration_connection(Connection(connection_string=SERVICEBUS), ManagementAddress(address))

    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COSMOS", f"AccountEndpoint=https://relay:{SECRET}@127.0.0.1:1/;AccountKey={KEY}"),
        ("SQL", f"postgresql://relay:{SECRET} {SECRET}@127.0.0.1:1/d"),
        ("APPLICATIONINSIGHTS_CONNECTION_STRING", f"InstrumentationKey={SECRET}"),
    ],
)
def test_a_process_that_does_not_start_names_the_setting_on_standard_error(name: str, value: str) -> None:
    environment = {
        **{
            given: text
            for given, text in os.environ.items()
            if not given.startswith(("COSMOS", "SQL", "APPLICATION"))
        },
        "SERVICEBUS": SERVICEBUS,
        "SQL": "postgresql://127.0.0.1:1/d",
        name: value,
    }

    ended = run_process(
        [sys.executable, "-m", "relay", "run"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert ended.returncode != 0
    assert f"{name} is no " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert SECRET not in ended.stderr + ended.stdout
    assert KEY not in ended.stderr + ended.stdout
