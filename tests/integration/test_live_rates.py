"""`python -m local up` shows live rates."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient
from dotenv import dotenv_values

from local.stack.environment import DATABASE
from tests.integration.test_stack import assert_nothing_remains_after
from tests.support.outbox import event, events
from tests.support.up import ANY_PORTS, ROOT
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

LINE = re.compile(
    r"(?P<written>[\d.]+) documents/s of any type, (?P<relayed>[\d.]+) events/s relayed, \S+ s behind, "
    r"(?P<quarantined>\d+) quarantined, (?P<dead>\d+) dead-lettered, \d+ failed attempts"
)


async def stack_up(folder: Path, **streams: Any) -> asyncio.subprocess.Process:
    """`up` with rates every half second, once it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "local", "up", *ANY_PORTS, "--rates-every", "0.5"),
        *("--env-file", str(folder / "stack.env"), "--logs", str(folder / "logs")),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        **streams,
    )
    assert process.stdout is not None
    async with asyncio.timeout(WATCHDOG_S):
        async for line in process.stdout:
            if b"Ctrl-C" in line:
                break
    return process


async def write(folder: Path) -> None:
    """Twenty events and a malformed one."""
    connection_string = str(dotenv_values(folder / "stack.env")["COSMOS"])
    async with CosmosClient.from_connection_string(connection_string) as client:
        data = client.get_database_client(DATABASE).get_container_client("data")
        for document in [*events("a", 20), event("bad", "a") | {"data": 7}]:
            del document["_ts"], document["_etag"]
            await data.create_item(document)


async def test_without_a_terminal_rates_are_lines_until_nothing_happens(tmp_path: Path) -> None:
    process = await stack_up(tmp_path, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        await write(tmp_path)
        relayed, quarantined, now_idle, silent = 0.0, 0, False, False
        async with asyncio.timeout(WATCHDOG_S):
            # The last change may be a quarantine record or a checkpoint: more than one line can say 0.0.
            while not (relayed and quarantined and now_idle and silent):
                try:
                    line = await asyncio.wait_for(process.stderr.readline(), 2)
                except TimeoutError:
                    silent = True
                    continue
                silent = False
                shown = LINE.search(line.decode())
                assert shown is not None
                relayed += float(shown["relayed"])
                quarantined = int(shown["quarantined"])
                now_idle = shown["written"] == shown["relayed"] == "0.0"
        process.terminate()
        code = await asyncio.wait_for(process.wait(), WATCHDOG_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert quarantined == 1
    # Twenty events, in rates per second measured over half a second or slightly more.
    assert 0 < relayed <= 41
    assert code == 0


async def test_on_a_terminal_the_numbers_are_shown_under_their_names(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    shown = bytearray()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, lambda: shown.extend(os.read(ours, 65536)))
    process = await stack_up(tmp_path, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    try:
        async with asyncio.timeout(WATCHDOG_S):
            while b"documents/s" not in shown:
                await asyncio.wait({asyncio.create_task(process.wait())}, timeout=0.1)
                assert process.returncode is None
        await assert_nothing_remains_after(process, signal.SIGINT)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)

    assert b"dead-lettered" in shown
