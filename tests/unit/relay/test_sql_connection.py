"""Reading the connection string of an SQL outbox, without showing any of it."""

from __future__ import annotations

import traceback
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.changefeed import ChangefeedError, SetupError
from relay.backends.sql.database import connect, needs_token, parameters
from relay.config.settings import Settings
from relay.core.errors import SettingsError, first_line
from tests.support.sql_outbox import sql_settings

SERVICEBUS = "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=x"

# Each has `hidden` as a part of the password, which somebody has not encoded.
UNENCODED = [
    "postgresql://relay:hidden word@127.0.0.1:1/shop",
    "postgresql://relay:hid%den-hidden@127.0.0.1:1/shop",
    "postgresql://relay:word@hidden@127.0.0.1:1/shop",
    "postgresql://relay:hidden/word@127.0.0.1:1/shop",
    "postgresql://relay:1/hidden@127.0.0.1:1/shop",
    "postgresql://relay:%00hidden@127.0.0.1:1/shop",
    "postgresql://relay:%ffhidden@127.0.0.1:1/shop",
    "postgresql://relay:[hidden@[127.0.0.1:1/shop",
    "postgresql://relay@127.0.0.1:1/shop?password=hidden%zz",
    "postgresql://relay@127.0.0.1:1/shop?password=hidden=word",
    "postgresql://relay@127.0.0.1:1/shop?passwort=hidden",
    "postgresql://relay@127.0.0.1:hidden/shop",
]


def problems(**environment: str) -> list[str]:
    try:
        Settings.from_environment({"SERVICEBUS": SERVICEBUS, **environment})
    except SettingsError as error:
        return error.problems
    return []


@pytest.mark.parametrize("url", UNENCODED)
async def test_a_url_that_is_not_encoded_is_refused_without_showing_any_of_it(url: str) -> None:
    with pytest.raises(ChangefeedError) as refused:
        await connect(sql_settings(url))

    shown = "".join(traceback.format_exception(refused.value)) + first_line(refused.value) + str(problems(SQL=url))
    assert "hidden" not in shown
    assert "SQL is no URL of PostgreSQL" in str(refused.value)
    assert "%40 for @" in str(refused.value)


@pytest.mark.parametrize("url", UNENCODED[:8])
def test_the_app_does_not_start_with_a_password_that_is_not_encoded(url: str) -> None:
    (problem,) = problems(SQL=url)

    assert problem.startswith("SQL is no URL of PostgreSQL")


@given(password=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_password_can_be_given_encoded(password: str) -> None:
    url = f"postgresql://relay:{quote(password, safe='')}@db.example:5432/shop"

    assert problems(SQL=url) == []
    assert parameters(url).get("password", "") == password


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///shop?host=/run/postgresql",
        "postgresql://postgres@/shop?host=/tmp/a%20b",
        "postgres://relay:a?b#c@one:5432,two:5433/shop?target_session_attrs=read-write",
        "postgresql://relay@[::1]:5432/shop",
        "postgresql://",
    ],
)
def test_what_libpq_takes_is_taken(url: str) -> None:
    assert problems(SQL=url) == []
    assert parameters(url) is not None


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("COSMOS__accountEndpoint", "AccountEndpoint=https://a/;AccountKey=hidden", "https://<account>.documents"),
        ("COSMOS__accountEndpoint", "https://relay:hidden@a.documents.azure.com/", "https://<account>.documents"),
        ("SERVICEBUS__fullyQualifiedNamespace", "Endpoint=sb://n.x;SharedAccessKey=hidden", "<namespace>.service"),
    ],
)
def test_a_connection_string_in_place_of_an_address_is_not_shown(name: str, value: str, remedy: str) -> None:
    environment = {"SERVICEBUS": SERVICEBUS, "SQL": "postgresql://db/shop", name: value}
    if name.startswith("SERVICEBUS"):
        del environment["SERVICEBUS"]

    with pytest.raises(SettingsError) as refused:
        Settings.from_environment(environment)

    (problem,) = refused.value.problems
    assert "hidden" not in problem
    assert problem.startswith(f"{name} is no address: set it as ")
    assert remedy in problem


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("connect_timeout=0", "connect_timeout"),
        ("connect_timeout=3600", "connect_timeout"),
        ("connect_timeout=soon", "connect_timeout"),
        ("options=-c%20statement_timeout%3D1h", "statement_timeout"),
        ("client_encoding=latin1", "client_encoding"),
    ],
)
async def test_what_of_the_url_cannot_be_kept_is_refused_by_name(query: str, named: str) -> None:
    with pytest.raises(SetupError, match=f"{named} of SQL|sets {named}"):
        await connect(sql_settings(f"postgresql://relay@127.0.0.1:1/shop?{query}"))


@pytest.mark.parametrize(
    ("url", "needed"),
    [
        ("postgresql://relay@s.postgres.database.azure.com/shop", True),
        ("postgresql://relay@S.POSTGRES.database.azure.com/shop", True),
        ("postgresql://relay:word@s.postgres.database.azure.com/shop", False),
        ("postgresql://relay@s.postgres.database.azure.com/shop?password=word", False),
        ("postgresql://relay@db.example/shop", False),
        ("postgresql:///shop?host=/run/postgresql", False),
        ("Server=tcp:s.database.windows.net;Database=shop", False),
    ],
)
def test_a_token_takes_the_place_of_a_missing_password_on_azure_alone(url: str, needed: bool) -> None:
    assert needs_token(url) is needed


async def test_options_and_timeouts_of_the_url_are_kept(postgres_database: str) -> None:
    given: dict[str, Any] = {
        "options": "-c work_mem=7MB -c application_name=relay",
        "connect_timeout": "7",
        "keepalives_idle": "77",
    }
    query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
    session = await connect(sql_settings(f"{postgres_database}&{query}"))

    shown = await _shown(session, "work_mem", "application_name", "statement_timeout", "client_encoding")
    kept = session._connection.session._connection.info.get_parameters()  # type: ignore[attr-defined]
    await session.close()

    assert shown == ["7MB", "relay", "1min", "UTF8"]
    assert (kept["connect_timeout"], kept["keepalives_idle"]) == ("7", "77")


async def _shown(session: Any, *names: str) -> list[str]:
    from outbox_relay.changefeed.statements import Statement

    return [(await session.execute(Statement(f"show {name}"))).rows[0][0] for name in names]
