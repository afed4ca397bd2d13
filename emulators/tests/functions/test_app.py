"""Loading apps: what is run, what is left out, what is refused."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from outbox_emulators.functions.app import importable, load_functions
from outbox_emulators.functions.errors import HostError

_TRIGGER = 'arg_name="documents", connection="COSMOS", database_name="d", container_name="c"'
_HEAD = "import azure.functions as func\n\napp = func.FunctionApp()\n\n"


def _app(directory: Path, body: str, head: str = _HEAD) -> Path:
    (directory / "function_app.py").write_text(head + body)
    return directory


def test_a_function_is_loaded_with_its_binding_and_retry_policy(tmp_path: Path) -> None:
    body = f"""
@app.function_name("publish")
@app.cosmos_db_trigger({_TRIGGER}, max_items_per_invocation=5)
@app.retry(strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:02")
async def relay(documents: func.DocumentList, context) -> None: ...
"""
    (function,) = load_functions(_app(tmp_path, body))
    assert (function.name, function.is_async, function.takes_context) == ("publish", True, True)
    assert (function.parameter, function.directory) == ("documents", str(tmp_path))
    assert function.trigger["maxItemsPerInvocation"] == 5
    assert function.retry_policy is not None
    assert (function.retry_policy.max_retry_count, function.retry_policy.minimum_s) == (-1, 2.0)


def test_the_advice_of_the_library_on_http_is_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_functions(_app(tmp_path, f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents): ...\n"))
    assert "Auth level" not in caplog.text
    logging.warning("Another warning at the root")
    assert "Another warning" in caplog.text


def test_an_app_is_loaded_afresh_each_time(tmp_path: Path) -> None:
    body = f"@app.cosmos_db_trigger({_TRIGGER})\ndef {{}}(documents): ...\n"
    assert load_functions(_app(tmp_path, body.format("first")))[0].name == "first"
    assert load_functions(_app(tmp_path, body.format("second")))[0].name == "second"


def test_an_app_can_import_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a_module_beside_the_app.py").write_text("NAME = 'beside'\n")
    head = "from a_module_beside_the_app import NAME\n" + _HEAD
    body = f"@app.function_name(NAME)\n@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents): ...\n"
    with importable(tmp_path):
        assert load_functions(_app(tmp_path, body, head))[0].name == "beside"
    assert str(tmp_path) not in sys.path


def test_functions_with_other_triggers_are_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = f"""
@app.queue_trigger(arg_name="order", queue_name="orders", connection="Q")
def take(order): ...

@app.cosmos_db_trigger({_TRIGGER})
def relay(documents): ...
"""
    with caplog.at_level(logging.WARNING, "outbox_emulators.functions"):
        assert [function.name for function in load_functions(_app(tmp_path, body))] == ["relay"]
    assert "Function take is not run: this host has no queueTrigger" in caplog.text


def test_a_function_with_a_timer_is_loaded(tmp_path: Path) -> None:
    body = """
@app.timer_trigger(arg_name="timer", schedule="0 * * * * *", run_on_startup=True, use_monitor=False)
def tick(timer: func.TimerRequest) -> None: ...
"""
    (function,) = load_functions(_app(tmp_path, body))
    assert (function.name, function.parameter, function.is_async) == ("tick", "timer", False)
    assert function.trigger["schedule"] == "0 * * * * *"
    assert (function.trigger["runOnStartup"], function.trigger["useMonitor"]) == (True, False)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("", "no function with a cosmosDBTrigger"),
        ('@app.route(route="orders")\ndef orders(req: func.HttpRequest): ...\n', "no function with"),
        (
            '@app.timer_trigger(arg_name="t", schedule="0 * * * * *")\ndef tick(t: str): ...\n',
            "write func.TimerRequest",
        ),
        (f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(docs): ...\n", "binds 'documents'"),
        (f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents, extra): ...\n", "no binding gives it extra"),
        (f"@app.cosmos_db_trigger({_TRIGGER})\ndef relay(documents: int): ...\n", "annotated <class 'int'>"),
        (
            f"@app.cosmos_db_trigger({_TRIGGER})\n"
            '@app.retry(strategy="fixed_delay", max_retry_count="x", delay_interval="00:00:01")\n'
            "def relay(documents): ...\n",
            "function relay: retry max_retry_count is 'x'",
        ),
        (
            f"@app.cosmos_db_trigger({_TRIGGER})\n"
            '@app.queue_output(arg_name="out", queue_name="q", connection="Q")\n'
            "def relay(documents, out): ...\n",
            r"not queue \(out\)",
        ),
        ("raise RuntimeError('no settings')\n", "cannot be loaded: RuntimeError: no settings"),
        ("other = func.FunctionApp()\n", "exactly one FunctionApp"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(tmp_path: Path, body: str, named: str) -> None:
    with pytest.raises(HostError, match=named):
        load_functions(_app(tmp_path, body))


def test_a_directory_without_a_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"function_app\.py does not exist"):
        load_functions(tmp_path)
