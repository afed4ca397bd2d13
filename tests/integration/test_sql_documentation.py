"""docs/sql.md: its commands and statements run in their order, and what it grants suffices for the relay.

The T-SQL of docs/writing-from-any-language.md parses.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlfluff.core import Linter

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.broker import topic_counts
from tests.support.contract import check_message
from tests.support.pages import ROOT, blocks, section
from tests.support.subscriber import body, received
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/sql.md"
LANGUAGES = ROOT / "docs/writing-from-any-language.md"
README = ROOT / "outbox_relay/changefeed/README.md"
WORDS = 2000
# Nothing connects to it.
BROKER = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA"


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command of the page as it stands there."""
    program, *arguments = shlex.split(command)
    assert program == "python"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    ).stdout


def quarantined(database: str) -> bool:
    """Return True if quarantine has taken anything."""
    with psycopg.connect(database) as reader:
        return bool(reader.execute("select 1 from relay.item where reason is not null").fetchall())


async def test_the_page_leads_from_an_empty_database_to_a_published_event(
    postgres_database: str, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SQL", "SERVICEBUS"))}
    environment |= {"PYTHONPATH": str(ROOT), "CHANGEFEED_URL": postgres_database}
    settings = tmp_path / "relay.env"
    settings.write_text(f"SQL={postgres_database}\nSERVICEBUS={servicebus.connection_string}\n", encoding="utf-8")

    [installed] = section(PAGE, "Set up", "sh")
    assert "outbox.domain_event" in await asyncio.to_thread(run, installed, tmp_path, environment)
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("create role relay login")
        for statements in (*section(PAGE, "Grant the rights", "sql"), *section(PAGE, "Write", "sql")):
            owner.execute(statements)
        # One that can never be sent: quarantine takes rights too.
        owner.execute("insert into outbox.domain_event (id, partition_key, data) values ('e-2', 'contact-8', '7')")
        owner.execute('insert into changefeed."outbox:outbox.domain_event" (shard_id, id) values (0, %s)', ["e-2"])

    # As the role that has these rights, and no others.
    as_relay = postgres_database.replace("postgres@", "relay@", 1)
    assert as_relay != postgres_database
    settings.write_text(f"SQL={as_relay}\nSERVICEBUS={servicebus.connection_string}\n", encoding="utf-8")
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay", "run", "--env-file", "relay.env"), cwd=tmp_path, env=environment
    )
    try:
        async with asyncio.timeout(WATCHDOG_S):
            while (await topic_counts(servicebus.admin_port))["accepted"] < 1 or not quarantined(
                postgres_database
            ):
                assert worker.returncode is None
                await asyncio.sleep(0.1)
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), WATCHDOG_S) == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    subscriber = await received(servicebus.connection_string, 1, receivers=1)
    [message] = subscriber.messages["contact-7"]
    check_message(message, "event")
    assert json.loads(body(message)) == {
        "action": "ContactNameUpdatedEvent",
        "name": "Jane",
        "createdAt": json.loads(body(message))["createdAt"],
    }

    [pruned] = section(PAGE, "Retention", "sh")
    await asyncio.to_thread(run, pruned, tmp_path, environment)
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("update outbox.domain_event set created_at = now() - interval '40 days'")
        [deleted] = section(PAGE, "Retention", "sql")
        # It is still on the feed, so it is kept.
        assert owner.execute(deleted).rowcount == 0
        owner.execute('delete from changefeed."feed:outbox.domain_event"')
        assert owner.execute(deleted).rowcount == 2


def test_a_service_writes_events_and_can_neither_change_nor_delete_them(
    postgres_database: str, tmp_path: Path
) -> None:
    (tmp_path / "relay.env").write_text(f"SQL={postgres_database}\nSERVICEBUS={BROKER}\n", encoding="utf-8")
    [installed] = section(PAGE, "Set up", "sh")
    run(installed, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    tables = ("outbox.domain_event", *(f'changefeed."{name}:outbox.domain_event"' for name in ("outbox", "feed")))
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("create role service")
        try:
            for grants in section(PAGE, "Let services write", "sql"):
                owner.execute(grants)
            owner.execute("set role service")
            for statement in section(PAGE, "Write", "sql"):
                owner.execute(statement)
            for table in tables:
                for refused in (f"delete from {table}", f"update {table} set id = id", f"truncate {table}"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        owner.execute(refused)
        finally:
            owner.execute("reset role")
            owner.execute("drop owned by service")
            owner.execute("drop role service")
        assert owner.execute("select id from outbox.domain_event").fetchall() == [("e-1",)]
        assert owner.execute('select id from changefeed."outbox:outbox.domain_event"').fetchall() == [("e-1",)]


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) < WORDS


@pytest.mark.parametrize("page", [PAGE, LANGUAGES, README], ids=lambda page: page.name)
def test_what_the_pages_show_of_t_sql_parses(page: Path) -> None:
    shown = [block.text for block in blocks(page) if block.language == "tsql"]

    assert shown
    assert [Linter(dialect="tsql").parse_string(text).violations for text in shown] == [[]] * len(shown)
