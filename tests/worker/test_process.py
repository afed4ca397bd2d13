"""The worker process on the platform's own library, alone and under a host."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.retries import RetryPolicy
from outbox_relay.emulators.functions.worker.interface import FunctionTimeout, Invocation, InvocationFailed
from outbox_relay.emulators.functions.worker.process import ProcessWorker
from packages.emulators.tests.integration.test_worker import SCRIPT, invocation, recorded
from tests.support.outbox import event
from tests.support.stacks import running_stack
from tests.support.subscriber import received

pytest.importorskip("azure_functions_runtime")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "function_app.py").write_text(SCRIPT)
    (folder / "beside.py").write_text(f"OUT = {str(tmp_path / 'out')!r}\n")
    return folder


@pytest.fixture
async def worker(app: Path) -> AsyncIterator[ProcessWorker]:
    made = ProcessWorker(app, os.environ, Edges(None))
    yield made
    await made.stop()


async def test_it_indexes_calls_fails_and_times_out_as_every_worker_does(
    worker: ProcessWorker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    relay, in_thread = await worker.start()
    assert (relay.name, relay.retry_policy) == ("relay", RetryPolicy(-1, 2.0, 60.0))
    assert (in_thread.name, in_thread.retry_policy) == ("in_thread", None)

    await worker.invoke(invocation("succeed ü"), timeout_s=None)
    (call,) = recorded(tmp_path)
    assert (call["document"], call["kind"]) == ({"id": "1", "do": "succeed ü"}, "DocumentList")
    assert (call["invocation"], call["retry"]) == ("id-succeed ü", [0, 0, ""])
    for do, message in (("raise", "ConnectionError: away"), ("return", "RuntimeError: ")):
        with pytest.raises(InvocationFailed, match=message):
            await worker.invoke(invocation(do), timeout_s=None)
    with pytest.raises(InvocationFailed):
        await worker.invoke(Invocation("relay", "i", f'[{{"n":1{"0" * 379}}}]'), timeout_s=None)
    with pytest.raises(FunctionTimeout):
        await worker.invoke(invocation("wait"), timeout_s=0.5)
    await worker.invoke(invocation("succeed"), timeout_s=None)
    assert recorded(tmp_path)[-1]["pid"] != call["pid"]
    # Only the platform's library says this.
    assert "Function name: relay, Function Type: async" in capfd.readouterr().err


async def test_a_timer_gets_its_argument_from_the_library(
    worker: ProcessWorker, app: Path, tmp_path: Path
) -> None:
    (app / "function_app.py").write_text(
        "import pathlib\n"
        "import azure.functions as func\n"
        "from beside import OUT\n"
        "app = func.FunctionApp()\n"
        '@app.timer_trigger(schedule="0 * * * * *", arg_name="timer")\n'
        "def tick(timer: func.TimerRequest) -> None:\n"
        "    pathlib.Path(OUT).write_text(f'{timer.past_due} {timer.schedule}')\n"
    )
    (tick,) = await worker.start()
    assert tick.trigger["schedule"] == "0 * * * * *"

    value = '{"Schedule": {"AdjustForDST": true}, "ScheduleStatus": null, "IsPastDue": true}'
    await worker.invoke(Invocation("tick", "i", value), timeout_s=None)

    assert (tmp_path / "out").read_text() == "True {'AdjustForDST': True}"


async def test_an_app_that_cannot_be_loaded_is_refused_with_the_librarys_reason(
    worker: ProcessWorker, app: Path
) -> None:
    (app / "function_app.py").write_text("raise RuntimeError('no settings')\n")

    with pytest.raises(HostError, match="cannot be loaded: RuntimeError: no settings"):
        await worker.start()


async def test_the_app_relays_events_on_a_stack_with_the_platforms_library(tmp_path: Path) -> None:
    async with running_stack(tmp_path / "logs") as running:
        data = running.container("data")
        for number in range(3):
            await data.create_item(event(str(number), "a"))
        subscriber = await received(running.stack.settings["SERVICEBUS"], 3)

    assert subscriber.ids() == {"a": ["0", "1", "2"]}
    log = (tmp_path / "logs" / "functions-1.log").read_text()
    # The app silences what the library itself logs, below `azure`.
    assert "The app runs on azure_functions_runtime" in log
