"""The user of the system that PostgreSQL runs as, where the tests and the local stack run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.watchdog import WATCHDOG_S

PROCESSES = 6

CREATES = """
import pwd, sys
from local.database.server import ensure_user_exists
print("ready", flush=True)
sys.stdin.readline()
ensure_user_exists(sys.argv[1])
print(pwd.getpwnam(sys.argv[1]).pw_uid)
"""

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0 or shutil.which("useradd") is None,
    reason="only root creates users, with useradd",
)


@pytest.fixture
def name() -> Iterator[str]:
    """The name of a user that does not exist, and does not after the test."""
    name = f"pgtest-{os.getpid()}"
    yield name
    subprocess.run(["userdel", name], check=False, capture_output=True)


def test_processes_that_start_together_create_one_user(name: str) -> None:
    import pwd

    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CREATES, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]

    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    seen = [process.communicate(timeout=WATCHDOG_S)[0].strip() for process in processes]

    assert seen == [str(pwd.getpwnam(name).pw_uid)] * PROCESSES
