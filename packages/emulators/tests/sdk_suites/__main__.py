"""`python -m packages.emulators.tests.sdk_suites cosmos|servicebus [arguments of pytest]`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / ".local" / "sdk-suites"
MARKS = {
    # The suite's own mark of what runs against Microsoft's emulator.
    "cosmos": "cosmosEmulator",
    "servicebus": "not playback_test_only",
}
_TIMEOUT_S = "420"
"""Limit for one test; one of azure-servicebus' is idle for five minutes, to see that its connection lives."""


class NotAvailable(Exception):
    """The source distribution could not be downloaded; the message says why."""


def tests_of(suite: str) -> Path:
    """The folder with the tests of the installed version, downloaded if need be. Raises NotAvailable."""
    name = f"azure-{suite}"
    version = importlib.metadata.version(name)
    unpacked = FOLDER / f"azure_{suite}-{version}"
    if not unpacked.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(FOLDER), f"{name}=={version}"], capture_output=True, text=True, check=False
        )
        archives = list(FOLDER.glob(f"azure*{suite}-{version}.tar.gz"))
        if done.returncode or not archives:
            raise NotAvailable(
                f"the source distribution of {name} {version} is needed, and pip could not download it from the "
                f"package index (set PIP_INDEX_URL for another one):\n{done.stderr[-1000:]}"
            )
        with tarfile.open(archives[0]) as archive:
            archive.extractall(FOLDER, filter="data")
    return unpacked / "tests"


async def run(suite: str, arguments: list[str]) -> int:
    """Run a suite against its own emulator; returns pytest's exit code. Raises NotAvailable."""
    tests = tests_of(suite)
    if suite == "cosmos":
        # Clients ask "localhost", and the account names "127.0.0.1", as Microsoft's emulator does: many tests take
        # the two for regions. Others count on one physical partition for a container without much throughput.
        port = _free_port()
        account = CosmosServer(
            port=port, public_endpoint=f"http://127.0.0.1:{port}/", physical_partitions=1, edges=None
        )
        async with account as cosmos:
            return await _pytest(
                suite, tests, arguments, ACCOUNT_HOST=f"http://localhost:{port}/", ACCOUNT_KEY=cosmos.key
            )
    async with ServiceBusServer(Entities(), edges=None, websockets=True) as servicebus:
        return await _pytest(
            suite,
            tests,
            arguments,
            SERVICEBUS_ENDPOINT_SUFFIX=f":{servicebus.port}",
            SUITE_ADMIN_PORT=str(servicebus.admin_port),
            SUITE_KEY=DEFAULT_KEY,
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def _pytest(suite: str, tests: Path, arguments: list[str], **environment: str) -> int:
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "packages.emulators.tests.sdk_suites.plugin",
            "-p",
            "no:cacheprovider",
        ),
        *(
            "--rootdir",
            str(tests),
            "-c",
            os.devnull,
            "-o",
            "asyncio_mode=auto",
            "-W",
            "ignore",
            "-m",
            MARKS[suite],
            "-rfEX",
        ),
        *("--timeout", _TIMEOUT_S, *(arguments or [str(tests)])),
        cwd=tests,
        env={**os.environ, "SUITE": suite, "PYTHONPATH": str(ROOT), **environment},
    )
    return await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m packages.emulators.tests.sdk_suites", description=__doc__)
    parser.add_argument("suite", choices=MARKS)
    options, arguments = parser.parse_known_args()
    try:
        code = asyncio.run(run(options.suite, arguments))
    except NotAvailable as error:
        print(f"{options.suite} was NOT run: {error}", file=sys.stderr)
        code = 0
    raise SystemExit(code)


if __name__ == "__main__":
    main()
