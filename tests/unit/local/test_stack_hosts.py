"""The report of a stack about its processes that have ended, for its page."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from local.console.hosts import StackHosts
from local.stack.parts import Part
from local.stack.supervisor import Stack, StackOptions
from local.stack.upkeep import Ended
from outbox_relay.operator.console.ports import Attempt
from relay.backends.findings import Level

SERVES = """
import sys
print("READY " + sys.argv[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(StackOptions(app=tmp_path, logs=tmp_path))


@pytest.mark.parametrize(
    ("name", "details", "own", "others"),
    [
        ("functions-1", "{}", "functions-1-relay", ["functions-10-relay", "functions-2-relay"]),
        ("worker-1", '{"relay_pid": 7}', "machine/7/0a1b2c3d", ["machine/77/0a1b2c3d", "worker-1-relay"]),
    ],
)
async def test_the_owner_of_leases_or_claims_has_ended_with_its_process(
    tmp_path: Path, stack: Stack, name: str, details: str, own: str, others: list[str]
) -> None:
    (tmp_path / "made_up_host.py").write_text(SERVES)
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    host = await Part.start(name, "made_up_host", details, log=tmp_path / "log", environment=path)
    stack.hosts.append(host)
    hosts = StackHosts(stack, "relay")
    running = hosts.ended_at(own)

    host.kill_alone()
    await stack.until_ended(host)

    assert running is None
    assert hosts.ended_at(own) == stack.ended_hosts[host]
    assert [owner for owner in others if hosts.ended_at(owner)] == []
    await stack.stop()


async def test_an_end_is_an_error_until_it_is_restored_and_a_loss_stays(stack: Stack) -> None:
    ends = {
        "cosmos": Ended("cosmos", "ended with exit code 1", 100.0),
        "servicebus": Ended("servicebus", "was killed by SIGKILL", 100.0, restored_at=101.0, loses="its messages"),
        "azurite": Ended("azurite", "was killed by SIGKILL", 100.0, restored_at=101.0, loses="its blobs"),
        "functions": Ended("functions-1", "was killed by SIGKILL", 100.0, restored_at=101.0),
    }
    stack.upkeep.ended.update(ends)

    soon = await StackHosts(stack, "relay", wall=lambda: 160.0).obstacles()
    later = await StackHosts(stack, "relay", wall=lambda: 162.0).obstacles()

    assert [each.level for each in soon] == [Level.ERROR, Level.WARNING, Level.WARNING, Level.WARNING]
    assert [each.what for each in later] == [ends[name].text for name in ("cosmos", "servicebus", "azurite")]
    assert later[1].what.endswith("its messages are lost")
    assert "relay replay --from" in str(later[1].remedy)


async def test_the_attempts_are_those_of_the_function_of_the_stream(stack: Stack) -> None:
    async def status(request: web.Request) -> web.Response:
        withheld = {"error": "too deep", "at": 100.0}
        functions = [
            {"name": "relay", "attempts": {"0": {"number": 2, "error": "busy"}}, "withheld": {}},
            {"name": "relay_orders", "attempts": {}, "withheld": {"0": withheld}},
        ]
        return web.json_response({"functions": functions})

    app = web.Application()
    app.router.add_get("/admin/status", status)
    async with TestServer(app) as server:
        stack.hosts.append(cast(Part, SimpleNamespace(details={"port": server.port})))
        found = {}
        for name in ("relay", "relay_orders"):
            hosts = StackHosts(stack, name, wall=lambda: 101.0)
            found[name] = await hosts.attempts()
            await hosts.close()

    assert found == {"relay": {"0": Attempt(2, "busy")}, "relay_orders": {"0": Attempt(withheld="too deep")}}
