"""Starts `python -m local up` in the background, and returns when it is ready."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from local.stack import lock
from local.stack.parts import child_environment, own_group
from local.stack.up import Options

_WITHIN_S = 120.0
_STOP_WITHIN_S = 30.0
_POLL_EVERY_S = 0.05


class NotStartedError(Exception):
    """The stack ended, or was not ready in time; the message has what it wrote."""


async def start(options: Options) -> lock.Running:
    """Start a stack that outlives this process, and wait until it is ready.

    Args:
        options: Those of `up`. What the stack writes goes to `up.log` in the folder of its logs.

    Raises:
        lock.AlreadyRunsError: One runs with this env file.
        NotStartedError: It could not be started.
    """
    if lock.running(options.env_file) is not None:
        raise lock.AlreadyRunsError(lock.already_runs(options.env_file))
    log: Path = options.logs / "up.log"
    stack = _launch(options, log)
    try:
        return await _until_ready(stack, options.env_file, log)
    except BaseException:
        stack.terminate()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(stack.wait, _STOP_WITHIN_S)
        raise


async def _until_ready(stack: subprocess.Popen[bytes], env_file: Path, log: Path) -> lock.Running:
    until = time.monotonic() + _WITHIN_S
    while time.monotonic() < until:
        if stack.poll() is not None:
            raise NotStartedError(_written(log))
        state = lock.running(env_file)
        if state is not None and state.ready_url:
            return state
        await asyncio.sleep(_POLL_EVERY_S)
    raise NotStartedError(f"The local stack was not ready within {_WITHIN_S:.0f} s; see {log}.")


def _launch(options: Options, log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        # Not by asyncio, which ends its children when this process ends.
        return subprocess.Popen(
            [sys.executable, "-m", "local", "up", *_words(options)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=child_environment(None),
            **own_group(),
        )


def _written(log: Path) -> str:
    return log.read_text(errors="replace").strip()


def _words(options: Options) -> Iterator[str]:
    """Yield the words of the same command line without `--detach`."""
    for each in fields(options):
        name, value = each.name, getattr(options, each.name)
        if name != "detach" and value is not None and value is not False:
            yield f"--{name.replace('_', '-')}"
            if value is not True:
                yield str(value)
