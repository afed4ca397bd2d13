"""`wait`, `status` and `send` with --json: objects that a program can read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from local.program import PROGRAM
from local.sending.command import as_json
from local.sending.event import Commit, Event
from local.sending.routed import STACK_APP, Outbox, streams_of
from local.stack.lock import Lock
from tests.support import programs
from tests.unit.local.test_routed import SETTINGS


async def run(
    command: str, env_file: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, Any, str]:
    """Run a command with --json; returns its exit code, what it printed, and its errors."""
    code = await programs.run(PROGRAM, command, "--json", "--env-file", str(env_file), *words)
    output, errors = capsys.readouterr()
    return code, json.loads(output), errors


def state(missing: str | None, url: str | None, addresses: Sequence[str] = ()) -> dict[str, Any]:
    known = {"url": url, "process": os.getpid(), "addresses": list(addresses)}
    return {"ready": missing is None, "missing": missing, **known}


async def test_a_stack_that_starts_is_not_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env_file = tmp_path / "stack.env"
    with Lock(env_file):
        found = await run("status", env_file, capsys)
        waited = await run("wait", env_file, capsys, "--timeout", "0")

    assert found == (1, state("it is starting", None), "")
    assert waited[:2] == (1, {"ready": False, "url": None})
    assert waited[2].startswith("The local stack is not ready after 0 s")


@pytest.mark.parametrize(("ready", "missing"), [(True, None), (False, "servicebus does not answer")])
async def test_a_stack_is_as_ready_as_its_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ready: bool, missing: str | None
) -> None:
    env_file = tmp_path / "stack.env"
    parts = {"parts": {"cosmos": True, "servicebus": ready}}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(parts, status=200 if ready else 503)

    app = web.Application()
    app.router.add_get("/ready", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/ready"))
        with Lock(env_file) as lock:
            lock.ready(url, ["The local stack is ready.", "  Console             http://x/"])
            found = await run("status", env_file, capsys)
            waited = await run("wait", env_file, capsys, "--timeout", "0")

    code = 0 if ready else 1
    assert found == (code, state(missing, url, ["Console             http://x/"]), "")
    assert waited[:2] == (code, {"ready": ready, "url": url})


@pytest.mark.parametrize(
    ("type_", "stream", "ignored"),
    [("order", "default", None), ("paid", None, "it is not so that the type is 'order'")],
)
def test_an_event_has_its_stream_or_why_it_is_ignored(
    tmp_path: Path, type_: str, stream: str | None, ignored: str | None
) -> None:
    (tmp_path / "relay.toml").write_text('[outboxes.default]\ntypes = ["order"]\n')
    outbox = Outbox.of(streams_of({**SETTINGS, STACK_APP: str(tmp_path)}))
    made = outbox.made(Event("k", "Foo", {}, type_, id="e-1"), 7)

    line = as_json(Commit(made.document, 7), outbox)

    assert json.loads(line) == {"id": "e-1", "number": 7, "stream": stream, "ignored": ignored}
