"""docs/mapping.md: its steps lead from a table that exists to a published event, with its writers as they were."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from local.database.server import POSTGRES
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.pages import ROOT, section
from tests.support.subscriber import body, received
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/mapping.md"
HEADING = "A table that you have already, and its writers"

CLAIMED = 'select 1 from changefeed."claim:shop.outbox_event" where owner is not null'


async def run(block: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a block as pasted; returns what it printed."""
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_a_table_that_exists_is_relayed_with_its_writers_as_they_were(
    postgres_database: str, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    table, trigger, first = section(PAGE, HEADING, "sql")
    installing, running, checking = section(PAGE, HEADING, "sh")
    (file,) = section(PAGE, HEADING, "toml")
    (tmp_path / "relay.toml").write_text(file)
    settings = {
        "SQL": postgres_database,
        "SERVICEBUS": servicebus.connection_string,
        "SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}",
        "RELAY_DUPLICATE_WINDOW_S": "300",
        "RELAY_FILE": str(tmp_path / "relay.toml"),
    }
    (tmp_path / "relay.env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SQL", "SERVICEBUS", "RELAY"))
    }
    programs = os.pathsep.join([str(Path(sys.executable).parent), str(POSTGRES.parent), kept["PATH"]])
    environment = kept | {"PATH": programs, "PYTHONPATH": str(ROOT), "OWNER": postgres_database}

    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute(table.encode())
        await run(installing, tmp_path, environment)
        owner.execute(trigger.encode())
        owner.execute("create role service; grant usage on schema shop to service")
        owner.execute("grant insert on shop.outbox_event to service")
        relay = await asyncio.create_subprocess_exec(
            "bash", "-c", f"exec {running.strip()}", cwd=tmp_path, env=environment
        )
        try:
            async with asyncio.timeout(WATCHDOG_S):
                while not owner.execute(CLAIMED).fetchall():
                    assert relay.returncode is None
                    await look_again()  # what another process commits can only be asked for again and again
            # As pasted, but for the window of the topic that the fixture has.
            checked = await run(checking.replace(" check ", " check --min-window PT5M "), tmp_path, environment)
            # The writer's statement and rights are those that it had.
            owner.execute("set role service")
            owner.execute(first.encode())
            owner.execute("reset role")
            messages = (await received(servicebus.connection_string, 1)).messages["order-7"]
            relay.terminate()
            assert await asyncio.wait_for(relay.wait(), WATCHDOG_S) == 0
        finally:
            if relay.returncode is None:
                relay.kill()
                await relay.wait()
            owner.execute("reset role; drop owned by service; drop role service")
        ids = owner.execute("select event_id::text from shop.outbox_event").fetchall()

    assert "the columns event_id, aggregateid, payload and the primary key event_id" in checked
    assert [(each.message_id,) for each in messages] == ids
    assert (messages[0].subject, body(messages[0]).decode()) == ("OrderPlaced", '{"total": 12}')
