"""The behaviour of every worker, in the host's process or its own, and of a worker process alone.

tests/worker runs the same with the platform's own library.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from azure.functions.cosmosdb import CosmosDBTriggerConverter

import outbox_relay.emulators
from outbox_relay.emulators.functions.context import RetryContext, RpcException
from outbox_relay.emulators.functions.edges import Edges, read_journal
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.retries import RetryPolicy
from outbox_relay.emulators.functions.worker.inprocess import InProcessWorker
from outbox_relay.emulators.functions.worker.interface import (
    FunctionTimeout,
    Invocation,
    InvocationFailed,
    Worker,
    WorkerDied,
)
from outbox_relay.emulators.functions.worker.process import ProcessWorker
from packages.emulators.tests.integration.apps import eventually
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

_TRIGGER = 'arg_name="documents", connection="COSMOS", database_name="d", container_name="c"'
SCRIPT = f"""\
import asyncio
import json
import os
import pathlib
import threading
import time

import azure.functions as func
from beside import OUT

app = func.FunctionApp()
calls = []


@app.cosmos_db_trigger({_TRIGGER})
@app.retry(strategy="exponential_backoff", max_retry_count="-1", minimum_interval="00:00:02",
           maximum_interval="00:01:00")
async def relay(documents: func.DocumentList, context: func.Context) -> None:
    calls.append(1)
    (document,) = documents
    retry = context.retry_context
    recorded = {{
        "pid": os.getpid(), "calls": len(calls), "document": dict(document), "kind": type(documents).__name__,
        "retry": [retry.retry_count, retry.max_retry_count, retry.rpc_exception.message],
        "invocation": context.invocation_id, "function": context.function_name,
    }}
    with pathlib.Path(OUT).open("a") as file:
        file.write(json.dumps(recorded) + "\\n")
    match document["do"]:
        case "raise":
            raise ConnectionError("away")
        case "wait":
            while not pathlib.Path(OUT).with_name("go").exists():
                await asyncio.sleep(0.01)
            with pathlib.Path(OUT).with_name("done").open("a") as file:
                file.write("done\\n")
        case "return":
            return 1
        case "print":
            print("printed by the app", flush=True)


@app.cosmos_db_trigger({_TRIGGER})
def in_thread(documents: str, context: func.Context) -> None:
    assert threading.current_thread() is not threading.main_thread()
    assert context.thread_local_storage.invocation_id == context.invocation_id
    pathlib.Path(OUT).write_text(documents)
"""

Make = Callable[[], Worker]

# As it is before any test runs: the relay's app, where a test loads it, puts its own in this one's place.
DECODE = CosmosDBTriggerConverter.decode


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "function_app.py").write_text(SCRIPT)
    (folder / "beside.py").write_text(f"OUT = {str(tmp_path / 'out')!r}\n")
    # The app of an earlier test in this process had a module of that name, and perhaps its own decoding.
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    monkeypatch.setattr(CosmosDBTriggerConverter, "decode", DECODE)
    return folder


@pytest.fixture(params=["in process", "process"])
async def worker(request: pytest.FixtureRequest, app: Path) -> AsyncIterator[Worker]:
    made: Worker = (
        InProcessWorker(app)
        if request.param == "in process"
        else ProcessWorker(app, os.environ, Edges(None), own=True)
    )
    yield made
    await made.stop()
    sys.modules.pop("beside", None)


@pytest.fixture
async def process(app: Path, tmp_path: Path) -> AsyncIterator[ProcessWorker]:
    made = ProcessWorker(app, os.environ, Edges(None, tmp_path / "edges"), own=True)
    yield made
    (tmp_path / "go").touch()
    await made.stop()


def invocation(do: str, retry: RetryContext | None = None) -> Invocation:
    return Invocation("relay", f"id-{do}", json.dumps([{"id": "1", "do": do}]), retry or RetryContext())


def recorded(tmp_path: Path) -> list[dict[str, Any]]:
    out = tmp_path / "out"
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


async def test_a_worker_indexes_the_app(worker: Worker) -> None:
    relay, in_thread = await worker.start()

    assert (relay.name, relay.retry_policy) == ("relay", RetryPolicy(-1, 2.0, 60.0))
    assert (relay.trigger["type"], relay.trigger["databaseName"]) == ("cosmosDBTrigger", "d")
    assert (in_thread.name, in_thread.retry_policy) == ("in_thread", None)


async def test_a_worker_calls_the_function_with_the_decoded_text_and_its_context(
    worker: Worker, tmp_path: Path
) -> None:
    await worker.start()
    retry = RetryContext(3, -1, RpcException(message="ConnectionError: before", stack_trace="…", source="s"))

    await worker.invoke(invocation("succeed ü \u2028", retry), timeout_s=None)

    (call,) = recorded(tmp_path)
    assert call["document"] == {"id": "1", "do": "succeed ü \u2028"}
    assert (call["kind"], call["function"]) == ("DocumentList", "relay")
    assert call["invocation"] == "id-succeed ü \u2028"
    assert call["retry"] == [3, -1, "ConnectionError: before"]


async def test_a_synchronous_function_gets_the_text_as_it_is(worker: Worker, tmp_path: Path) -> None:
    await worker.start()
    text = '[{"n":1E+22,"s":"\u2028"}]'

    await worker.invoke(Invocation("in_thread", "i", text), timeout_s=None)

    assert (tmp_path / "out").read_text() == text


@pytest.mark.parametrize(
    ("do", "message"), [("raise", "ConnectionError: away"), ("return", "RuntimeError: function relay without a $")]
)
async def test_what_the_function_raises_fails_its_invocation(worker: Worker, do: str, message: str) -> None:
    await worker.start()

    with pytest.raises(InvocationFailed) as failed:
        await worker.invoke(invocation(do), timeout_s=None)

    assert str(failed.value).startswith(message)
    assert "function_app.py" in failed.value.stack_trace or do == "return"


async def test_a_text_that_the_worker_cannot_decode_fails_its_invocation_not_the_worker(worker: Worker) -> None:
    await worker.start()

    with pytest.raises(InvocationFailed):
        await worker.invoke(Invocation("relay", "i", f'[{{"n":1{"0" * 379}}}]'), timeout_s=None)
    await worker.invoke(invocation("succeed"), timeout_s=None)


async def test_what_takes_too_long_fails_with_the_time_it_was_given(worker: Worker, tmp_path: Path) -> None:
    await worker.start()

    with pytest.raises(FunctionTimeout, match=r"FunctionTimeout: Timeout value of 0\.5 s was exceeded"):
        await worker.invoke(invocation("wait"), timeout_s=0.5)

    await worker.invoke(invocation("succeed"), timeout_s=None)
    assert not (tmp_path / "done").exists()


async def test_an_app_that_cannot_be_loaded_is_refused_with_the_reason(worker: Worker, app: Path) -> None:
    (app / "function_app.py").write_text("raise RuntimeError('no settings')\n")

    with pytest.raises(HostError, match="cannot be loaded: RuntimeError: no settings"):
        await worker.start()


async def test_a_worker_process_finds_the_package_where_the_host_has_it(process: ProcessWorker, app: Path) -> None:
    # Within `outbox_relay`, an installed `operator` would hide the module of Python.
    (app / "function_app.py").write_text("import os\nraise RuntimeError(os.environ['PYTHONPATH'])\n")
    [namespace] = {Path(folder).parent for folder in outbox_relay.emulators.__path__}

    with pytest.raises(HostError, match=f"RuntimeError: {re.escape(str(namespace.parent))}(:|$)"):
        await process.start()


async def test_an_app_that_ends_its_process_is_refused(process: ProcessWorker, app: Path) -> None:
    (app / "function_app.py").write_text("import os\nos._exit(7)\n")

    with pytest.raises(HostError, match="ended with exit code 7 before it had indexed the app"):
        await process.start()


async def _in_the_midst(process: ProcessWorker, tmp_path: Path, count: int = 1) -> list[asyncio.Task[None]]:
    calls = [asyncio.create_task(process.invoke(invocation("wait"), timeout_s=20)) for _ in range(count)]
    await eventually(lambda: len(recorded(tmp_path)) == count)
    return calls


async def test_a_worker_that_is_killed_fails_all_its_invocations_at_once_and_is_replaced(
    process: ProcessWorker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outbox_relay.emulators.functions")
    await process.start()
    calls = await _in_the_midst(process, tmp_path, 3)

    os.kill(recorded(tmp_path)[0]["pid"], signal.SIGKILL)

    ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), WATCHDOG_S)
    assert [type(failure) for failure in ended] == [WorkerDied] * 3
    await eventually(lambda: caplog.text.count("runs the app") == 2)  # without having been asked for
    await process.invoke(invocation("succeed"), timeout_s=None)
    first, *_, last = recorded(tmp_path)
    assert (last["calls"], last["pid"] != first["pid"]) == (1, True)
    assert read_journal(tmp_path / "edges") == {"worker-killed": 1}


async def test_a_timeout_kills_the_worker_and_others_learn_of_it_at_their_own_timeouts(
    process: ProcessWorker, tmp_path: Path
) -> None:
    await process.start()
    (other,) = await _in_the_midst(process, tmp_path)

    with pytest.raises(FunctionTimeout):
        await process.invoke(invocation("wait"), timeout_s=0.3)
    await process.invoke(invocation("succeed"), timeout_s=None)

    first, *_, last = recorded(tmp_path)
    assert last["pid"] != first["pid"]
    assert not other.done()
    other.cancel()
    assert read_journal(tmp_path / "edges") == {"timeout-killed-worker": 1}


async def test_what_the_app_prints_reaches_the_hosts_log(
    process: ProcessWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    await process.start()
    await process.invoke(invocation("print"), timeout_s=None)

    await eventually(lambda: "printed by the app" in capsys.readouterr().err)
