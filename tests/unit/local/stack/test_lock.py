"""Only one stack at a time has an env file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from local.stack.lock import AlreadyRunsError, Lock, Running, running


def test_a_second_stack_is_told_where_the_first_one_runs(tmp_path: Path) -> None:
    env_file = tmp_path / "deep" / "stack.env"
    assert running(env_file) is None

    with Lock(env_file) as lock:
        assert running(env_file) == Running(os.getpid())
        lock.ready("http://127.0.0.1:7070/ready", ["ready"])
        assert running(env_file) == Running(os.getpid(), "http://127.0.0.1:7070/ready", ("ready",))
        with (
            pytest.raises(AlreadyRunsError, match=f"process {os.getpid()}, http://127.0.0.1:7070/ready"),
            Lock(env_file),
        ):
            pass

    assert running(env_file) is None
    with Lock(env_file):
        assert running(env_file) is not None


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    env_file = tmp_path / "stack.env"
    script = (
        "import pathlib, sys\nfrom local.stack.lock import Lock\n"
        f"with Lock(pathlib.Path({str(env_file)!r})):\n    print('locked', flush=True)\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert running(env_file) == Running(process.pid)
        process.kill()

    assert running(env_file) is None
