"""The options of `python -m relay console`, and the check that its page runs."""

from __future__ import annotations

import pytest

from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.cli.console import check_of
from outbox_relay.operator.cli.main import PROGRAM
from relay.config.settings import Settings
from relay.core.errors import UsageError

BOTH = {
    "COSMOS__accountEndpoint": "https://x.documents.azure.com:443/",
    "SQL": "postgresql://relay@x.postgres.database.azure.com/outbox",
    "SERVICEBUS__fullyQualifiedNamespace": "x.servicebus.windows.net",
}


def test_by_default_it_is_for_this_machine_and_counts_from_now() -> None:
    chosen = PROGRAM.parse(["console"]).options

    assert [chosen[name] for name in ("host", "port", "begin", "source")] == ["127.0.0.1", 8080, "now", None]


@pytest.mark.parametrize("port", ["-1", "65536", "http", "8 0", "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_port_is_named(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(["console", f"--port={port}"])

    assert "is no port: give a number from 0 to 65535" in capsys.readouterr().err


def test_one_outbox_is_chosen_of_two() -> None:
    settings = Settings.from_environment(BOTH)

    sql, cosmos = (open_backend(settings, source).settings for source in ("sql", "cosmos"))

    assert (sql.cosmos, sql.sql) == (None, settings.sql)
    assert (cosmos.cosmos, cosmos.sql) == (settings.cosmos, None)
    assert open_backend(sql).settings == sql
    with pytest.raises(UsageError, match="both set: add --source cosmos or --source sql"):
        open_backend(settings)
    with pytest.raises(UsageError, match="--source cosmos: COSMOS is not set"):
        open_backend(sql, "cosmos")


async def test_the_check_of_the_page_is_that_of_the_command() -> None:
    findings = await check_of({"RELAY_SENDERS": "none"})()

    assert {each.level for each in findings} == {"error"}
    assert [each.what for each in findings if "RELAY_SENDERS is 'none'" in each.what]
