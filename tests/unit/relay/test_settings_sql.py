"""The settings of an SQL outbox, alone or beside one in Cosmos DB."""

from __future__ import annotations

import pytest

from relay.clients import Identity
from relay.errors import SettingsError
from relay.settings import Settings, SqlFeed

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


_BOUNDS = [
    ("SQL_SHARDS", "1", "1024", "a whole number"),
    ("SQL_CLAIM_S", "2", "300", "a number of seconds"),
    ("SQL_MAX_BYTES", "1048576", "1099511627776", "a whole number"),
]


@pytest.mark.parametrize(("name", "least", "most", "what"), _BOUNDS)
def test_the_bounds_of_a_setting_are_accepted(name: str, least: str, most: str, what: str) -> None:
    attribute = name.lower().removeprefix("sql_")

    for value in (least, most):
        assert getattr(read(SQL=POSTGRES, **{name: value}).sql, attribute) == float(value)


@pytest.mark.parametrize(("name", "least", "most", "what"), _BOUNDS)
def test_values_out_of_bounds_are_refused(name: str, least: str, most: str, what: str) -> None:
    for value in (str(int(least) - 1), str(int(most) + 1), "-1", "nan", "inf", "many", "0x10", "1e999"):
        (problem,) = problems(SQL=POSTGRES, **{name: value})

        assert problem == f"{name} is {value!r}: set {what} from {least} to {most}"


@pytest.mark.parametrize("value", ["2.5", "1.0", "1e3"])
@pytest.mark.parametrize("name", ["SQL_SHARDS", "SQL_MAX_BYTES"])
def test_what_is_counted_is_a_whole_number(name: str, value: str) -> None:
    (problem,) = problems(SQL=POSTGRES, **{name: value})

    assert problem.startswith(f"{name} is {value!r}: set a whole number from ")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (
            "SQL__credential",
            "clientsecret",
            "SQL__credential is 'clientsecret': set 'managedidentity', or leave it out",
        ),
        ("SQL_SHARD", "2", "SQL_SHARD is not a setting: did you mean SQL_SHARDS?"),
        ("SQL_MAX_BYTE", "2", "SQL_MAX_BYTE is not a setting: did you mean SQL_MAX_BYTES?"),
        ("SQL_CLAIMS_S", "2", "SQL_CLAIMS_S is not a setting: did you mean SQL_CLAIM_S?"),
    ],
)
def test_misspelt_names_and_other_credentials_are_refused(name: str, value: str, problem: str) -> None:
    assert problems(SQL=POSTGRES, **{name: value}) == [problem]


def test_no_representation_shows_the_connection_string() -> None:
    assert "hidden" not in repr(read(SQL=POSTGRES))
