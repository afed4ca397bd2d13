"""docs/consumers.md: its programs are run as pasted, and its manifest fits the library and the page."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from outbox_relay import inbox
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.inbox.session import CLOSE_S
from tests.integration.conftest import ROOT
from tests.integration.test_receiving_documentation import event, lent
from tests.support.broker import admin
from tests.support.dead_letters import Topic
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/consumers.md").read_text(encoding="utf-8")
MANIFEST = (ROOT / "infra/kubernetes/consumer.yaml").read_text(encoding="utf-8")


async def test_the_application_of_the_page_receives_while_it_serves(tmp_path: Path, entities: Entities) -> None:
    [program] = re.findall(r"```python\n(# loans_api\.py\n.*?)```", PAGE, re.DOTALL)
    [command] = re.findall(r"```sh\n\.venv/bin/python (-m uvicorn .*?)\n```", PAGE)
    (tmp_path / "loans_api.py").write_text(program, encoding="utf-8")
    async with ServiceBusServer(entities) as server:
        Topic(server).publish(event("e1", "k", "BookLent", title="Frankenstein"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command.replace("8000", "0").split()),
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "packages/inbox/src"),
                "SERVICEBUS": server.connection_string,
            },
            stderr=PIPE,
        )
        try:
            address = await asyncio.wait_for(_address(process.stderr), WATCHDOG_S)
            async with aiohttp.ClientSession(address) as client:
                async with asyncio.timeout(WATCHDOG_S):
                    while await _json(client, "/lent/Frankenstein") == 0:
                        await asyncio.sleep(0.02)
                async with client.get("/health") as answer:
                    assert answer.status == 200
            process.send_signal(signal.SIGTERM)
            # uvicorn ends as by the signal, once the lifespan is over.
            assert await asyncio.wait_for(process.wait(), WATCHDOG_S) in (0, -signal.SIGTERM)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        counts = (await admin(server.admin_port, "GET", "entities"))["domain-events/Subscriptions/all"]

    assert (counts["active"], counts["locked"]) == (0, 0)
    assert lent(tmp_path) == [("Frankenstein", 1)]


async def test_the_program_of_the_cluster_keeps_its_state_in_postgresql(
    tmp_path: Path, entities: Entities, postgres_database: str
) -> None:
    [program] = re.findall(r"```python\n(# loans_consumer\.py\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "loans_consumer.py").write_text(program, encoding="utf-8")
    async with (
        ServiceBusServer(entities) as server,
        await psycopg.AsyncConnection.connect(postgres_database, autocommit=True) as database,
    ):
        Topic(server).publish(event("e1", "k", "BookLent", title="Frankenstein"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "loans_consumer.py"),
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "packages/inbox/src"),
                "SERVICEBUS": server.connection_string,
                "DATABASE": postgres_database,
            },
        )
        try:
            async with asyncio.timeout(WATCHDOG_S):
                while not (rows := await _lent(database)):
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), WATCHDOG_S) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        counts = (await admin(server.admin_port, "GET", "entities"))["domain-events/Subscriptions/all"]

    assert rows == [("Frankenstein", 1)]
    assert (counts["active"], counts["locked"]) == (0, 0)


async def _lent(database: psycopg.AsyncConnection[Any]) -> list[Any]:
    try:
        return await (await database.execute("SELECT * FROM lent")).fetchall()
    except psycopg.errors.UndefinedTable:  # the program creates it
        return []


async def _address(stream: Any) -> str:
    seen = ""
    while line := (await stream.readline()).decode():
        seen += line
        if found := re.search(r"running on (http://[\d.:]+)", line):
            return found[1]
    raise AssertionError(seen)


async def _json(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as response:
        return await response.json()


def test_the_manifest_of_a_consumer_gives_it_time_to_stop_and_no_rights() -> None:
    objects = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST)}
    deployment, scale = objects["Deployment"], objects["ScaledObject"]["spec"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [trigger] = scale["triggers"]
    [command] = re.findall(r"^CMD (.*)$", PAGE, re.MULTILINE)

    assert set(objects) == {"ServiceAccount", "Deployment", "TriggerAuthentication", "ScaledObject"}
    assert pod["terminationGracePeriodSeconds"] > inbox.Options().grace_s + 2 * CLOSE_S
    assert container["command"] == yaml.safe_load(command)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (
        objects["ServiceAccount"]["automountServiceAccountToken"] is pod["automountServiceAccountToken"] is False
    )
    assert "replicas" not in deployment["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["azure.workload.identity/use"] == "true"
    names = {deployment["metadata"]["name"], scale["scaleTargetRef"]["name"], pod["serviceAccountName"]}
    assert names == {objects["ServiceAccount"]["metadata"]["name"], trigger["authenticationRef"]["name"]}
    assert (trigger["type"], trigger["metadata"]["subscriptionName"]) == ("azure-servicebus", "all")
    identity = objects["ServiceAccount"]["metadata"]["annotations"]["azure.workload.identity/client-id"]
    assert objects["TriggerAuthentication"]["spec"]["podIdentity"] == {
        "provider": "azure-workload",
        "identityId": "11111111-1111-1111-1111-111111111111",
    }
    assert identity != "11111111-1111-1111-1111-111111111111"
