"""A PostgreSQL of a measurement's own, with fsync on, and its processor time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import psycopg

from local.database.server import POSTGRES, as_other_user, prepare


@asynccontextmanager
async def running_server(folder: Path) -> AsyncIterator[tuple[str, psutil.Process]]:
    """A PostgreSQL with fsync on, on a socket in its folder: its URL and its process."""
    data = folder / "data"
    await asyncio.to_thread(prepare, data)
    (data / "pg_hba.conf").write_text("local all all trust\n")
    process = await asyncio.create_subprocess_exec(
        *(str(POSTGRES), "-D", str(data), "-k", str(data), "-c", "listen_addresses=", "-c", "max_wal_size=4GB"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        **as_other_user(),
    )
    url = f"postgresql://postgres@/postgres?host={data}"
    try:
        async with asyncio.timeout(20):
            while not await _answers(url):
                await asyncio.sleep(0.05)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _answers(url: str) -> bool:
    try:
        await (await psycopg.AsyncConnection.connect(url)).close()
    except psycopg.OperationalError:
        return False
    return True


def database_seconds(server: psutil.Process) -> float:
    """Return the seconds of the server and of all sessions, those that have ended included."""
    times = [server.cpu_times()]
    for child in server.children():
        try:
            times.append(child.cpu_times())
        except psutil.NoSuchProcess:
            continue
    own = sum(one.user + one.system for one in times)
    return float(own + times[0].children_user + times[0].children_system)
