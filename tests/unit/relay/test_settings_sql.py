"""The settings of an SQL outbox, alone or beside one in Cosmos DB."""

from __future__ import annotations

import pytest

from relay.errors import SettingsError
from relay.settings import Identity, Settings, SqlFeed

SERVICEBUS = "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=YQ=="
POSTGRES = "postgresql://relay:hidden@db.example/shop"


def read(**environment: str) -> Settings:
    return Settings.from_environment({"SERVICEBUS": SERVICEBUS, **environment})


def problems(**environment: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(**environment)
    return caught.value.problems


def test_an_sql_outbox_needs_no_cosmos_db() -> None:
    settings = read(SQL=POSTGRES)

    assert settings.cosmos is None
    assert settings.sql == SqlFeed(
        POSTGRES, Identity(managed=False, client_id=None), "outbox.domain_event", shards=1, claim_s=10.0
    )


def test_everything_can_be_set() -> None:
    settings = read(
        SQL="Server=tcp:s.database.windows.net;Database=shop;Authentication=ActiveDirectoryMSI",
        SQL_FEED="shop.Event",
        SQL_SHARDS="8",
        SQL_CLAIM_S="5",
        SQL_MAX_BYTES="1048576",
        SQL__credential="managedidentity",
        SQL__clientId="0000-1111",
    )

    assert settings.sql is not None
    assert (settings.sql.feed, settings.sql.shards, settings.sql.claim_s) == ("shop.Event", 8, 5.0)
    assert settings.sql.max_bytes == 1048576
    assert settings.sql.identity == Identity(managed=True, client_id="0000-1111")


def test_both_outboxes_may_be_set() -> None:
    settings = read(SQL=POSTGRES, COSMOS="AccountEndpoint=https://a/;AccountKey=YQ==")

    assert settings.cosmos is not None
    assert settings.sql is not None


def test_without_sql_there_is_none_and_cosmos_db_is_required() -> None:
    assert read(COSMOS="AccountEndpoint=https://a/;AccountKey=YQ==").sql is None
    (problem,) = problems()
    assert "COSMOS" in problem
    assert "SQL" in problem


@pytest.mark.parametrize("value", ["hidden", "Server=s;User=hidden", "Database=hidden", "mysql://hidden@h/d"])
def test_what_is_no_connection_string_is_refused_without_being_shown(value: str) -> None:
    (problem,) = problems(SQL=value)

    assert problem.startswith("SQL is no connection string")
    assert "hidden" not in problem


@pytest.mark.parametrize("feed", ["domain_event", ".domain_event", "outbox."])
def test_a_feed_is_named_with_its_schema(feed: str) -> None:
    (problem,) = problems(SQL=POSTGRES, SQL_FEED=feed)

    assert problem == f"SQL_FEED is {feed!r}: set it to the event table as schema.Table"


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("SQL_SHARDS", "0", "set a whole number from 1 to 1024"),
        ("SQL_SHARDS", "1025", "set a whole number from 1 to 1024"),
        ("SQL_CLAIM_S", "1", "set a number of seconds from 2 to 300"),
        ("SQL_CLAIM_S", "301", "set a number of seconds from 2 to 300"),
        ("SQL__credential", "clientsecret", "set 'managedidentity'"),
        ("SQL_SHARD", "2", "did you mean SQL_SHARDS?"),
    ],
)
def test_values_out_of_bounds_and_misspelt_names_are_refused(name: str, value: str, remedy: str) -> None:
    (problem,) = problems(SQL=POSTGRES, **{name: value})

    assert name in problem
    assert remedy in problem


def test_no_representation_shows_the_connection_string() -> None:
    assert "hidden" not in repr(read(SQL=POSTGRES))
