"""The hooks that fail a test which leaves something behind, in a session of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.pages import ROOT

# One session finds all of them.
pytestmark = pytest.mark.xdist_group("leaks")

PROJECT = """
import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import leaks

kept = []


@pytest.fixture(autouse=True)
def limit(request):
    waited_for = request.node.name.startswith("test_is_clean") or request.node.name.endswith("_ends")
    leaks.ENDS_WITHIN_S = 60.0 if waited_for else 0.2


async def test_leaks_a_task():
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="kept task"))


async def test_leaks_a_task_of_a_fixture(tasks):
    pass


@pytest.fixture
async def tasks():
    yield
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="task of a fixture"))


async def test_leaks_a_coroutine():
    asyncio.sleep(0)


async def test_leaks_an_open_transport():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))


async def test_leaks_a_subprocess_transport():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=subprocess.PIPE)
    kept.append(process.stdin)


def test_leaks_a_socket_that_it_keeps():
    kept.append(socket.create_server(("127.0.0.1", 0)))


def test_leaks_a_socket_that_it_drops():
    circle = [socket.create_server(("127.0.0.1", 0))]
    circle.append(circle)


def test_leaks_a_child_process():
    kept.append(subprocess.Popen(["sleep", "1000"]))


def test_leaks_an_environment_variable():
    os.environ["LEAKED"] = "x"


def test_leaks_a_thread():
    threading.Thread(target=threading.Event().wait, name="kept thread", daemon=True).start()


@pytest.fixture
def opened():
    return open(__file__)


def test_leaks_a_file_of_a_fixture(opened):
    pass


def test_leaks_a_file_of_a_logged_error():
    opened = open(__file__)
    try:
        raise ValueError("logged")
    except ValueError:
        logging.getLogger("test").exception("an error")


def test_leaks_an_exception_in_a_finalizer():
    class Broken:
        def __init__(self):
            self.itself = self

        def __del__(self):
            raise ValueError("broken finalizer")

    Broken()


def test_leaks_an_exception_in_a_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()


def test_fails_and_leaks_a_socket():
    dropped = socket.create_server(("127.0.0.1", 0))
    assert not dropped


def test_is_clean():
    assert "LEAKED" not in os.environ


def test_is_clean_and_sets_logging_up():
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(logging.NullHandler())


def test_is_clean_where_logging_was_set_up():
    assert logging.getLogger("azure").level == logging.NOTSET
    assert logging.getLogger().level == logging.WARNING
    assert logging.NullHandler not in map(type, logging.getLogger().handlers)


@pytest.fixture(scope="class")
def logging_of_a_class():
    logging.getLogger("loud").setLevel(logging.DEBUG)
    yield
    logging.getLogger("loud").setLevel(logging.NOTSET)


class TestLogging:
    def test_is_clean_while_its_class_sets_a_level(self, logging_of_a_class):
        assert logging.getLogger("loud").level == logging.DEBUG


def test_is_clean_where_a_class_has_set_a_level():
    assert logging.getLogger("loud").level == logging.NOTSET


async def test_is_clean_and_closes_at_the_end():
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=ours)
    writer.close()
    theirs.close()
    asyncio.create_task(asyncio.sleep(0))


@pytest.fixture(scope="module")
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening, subprocess.Popen(["sleep", "1000"]) as process:
        yield listening
        process.kill()


def test_is_clean_with_a_fixture_of_its_module(server):
    pass


def test_is_clean_with_a_fixture_that_was_there(server):
    pass


async def test_is_clean_once_the_task_has_ended():
    asyncio.create_task(asyncio.sleep(0.01))


def test_is_clean_once_the_thread_has_ended():
    threading.Timer(0.01, int).start()


def test_is_clean_once_a_thread_has_dropped_its_pool():
    pool = ThreadPoolExecutor(1)
    pool.itself = pool
    pool.submit(int).result()
    threading.Thread(target=lambda held: threading.Event().wait(0.05), args=[pool]).start()
    del pool


class LateStream(asyncio.StreamReaderProtocol):
    def __del__(self):
        pass  # As if its future was finalized before it.


async def test_is_clean_once_a_stream_with_an_error_is_dropped():
    stream = LateStream(asyncio.StreamReader())
    stream.itself = stream
    stream.connection_lost(ConnectionResetError())


async def test_leaks_a_future_with_an_error():
    circle = [asyncio.get_running_loop().create_future()]
    circle.append(circle)
    circle[0].set_exception(ConnectionResetError())


async def test_leaks_a_future_with_an_error_that_it_drops():
    asyncio.get_running_loop().create_future().set_exception(ConnectionResetError())


async def test_leaks_an_exception_in_a_callback():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)


def test_leaks_a_task_that_is_dropped_while_a_thread_ends():
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio.Event().wait(), name="held task")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    threading.Thread(target=lambda held: threading.Event().wait(0.05), args=[task]).start()
    threading.Thread(target=threading.Event().wait, args=[0.3]).start()


class Holder:
    def __init__(self):
        self.itself, self.file = self, open(__file__)


@pytest.fixture(scope="module")
def holder():
    yield Holder()


def test_is_clean_while_a_fixture_of_its_module_holds_a_file(holder):
    pass


def test_leaks_a_file_that_a_fixture_of_its_module_drops(holder):
    pass


@pytest.fixture(scope="module", autouse=True)
def at_the_end():
    yield
    for each in kept:
        if isinstance(each, subprocess.Popen):
            each.kill()
            each.wait()
"""

EXPECTED = {
    "test_leaks_a_task": "name='kept task' coro=<Event.wait()",
    "test_leaks_a_task_of_a_fixture": "name='task of a fixture' coro=<Event.wait()",
    "test_leaks_a_coroutine": "coroutine 'sleep' was never awaited",
    "test_leaks_an_open_transport": "unclosed transport <_SelectorDatagramTransport",
    "test_leaks_a_subprocess_transport": "child process",
    "test_leaks_a_socket_that_it_keeps": "- socket:[",
    "test_leaks_a_socket_that_it_drops": "unclosed <socket.socket",
    "test_leaks_a_child_process": ": sleep 1000",
    "test_leaks_an_environment_variable": "- the environment variable LEAKED",
    "test_leaks_a_task_that_is_dropped_while_a_thread_ends": "Task was destroyed but it is pending",
    "test_leaks_a_thread": "<Thread(kept thread, started daemon",
    "test_leaks_a_file_of_a_fixture": "unclosed file <_io.TextIOWrapper",
    "test_leaks_a_file_of_a_logged_error": "unclosed file <_io.TextIOWrapper",
    "test_leaks_a_file_that_a_fixture_of_its_module_drops": "unclosed file <_io.TextIOWrapper",
    "test_leaks_an_exception_in_a_finalizer": "broken finalizer",
    "test_leaks_an_exception_in_a_thread": "ZeroDivisionError",
    "test_fails_and_leaks_a_socket": "unclosed <socket.socket",
    "test_leaks_a_future_with_an_error": "Future exception was never retrieved",
    "test_leaks_a_future_with_an_error_that_it_drops": "Future exception was never retrieved",
    "test_leaks_an_exception_in_a_callback": "Exception in callback",
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Run the project; returns the messages of the failures and errors of each of its tests."""
    folder = tmp_path_factory.mktemp("leaking")
    (folder / "test_leaking.py").write_text(PROJECT)
    settings = "\n".join(
        f"-o{each}" for each in ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
    )
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-ptests.support.leaks", "-pno:cacheprovider", "-pno:xdist"),
            *("-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", "--junitxml=report.xml", "-q"),
            *settings.splitlines(),
            str(folder / "test_leaking.py"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    return read_errors(folder / "report.xml")


def read_errors(report: Path) -> dict[str, list[str]]:
    cases = ElementTree.parse(report).getroot().iter("testcase")
    found: dict[str, list[str]] = {}
    for case in cases:
        problems = [*case.iter("failure"), *case.iter("error")]
        found.setdefault(case.attrib["name"], []).extend(problem.text or "" for problem in problems)
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_a_leak_fails_the_test_that_leaks(errors: dict[str, list[str]], name: str) -> None:
    assert EXPECTED[name] in "\n".join(errors[name])


def test_no_leak_is_found_in_another_test(errors: dict[str, list[str]]) -> None:
    assert {name for name, found in errors.items() if found} == EXPECTED.keys()
    assert sum(name.startswith("test_is_clean") for name in errors) == 13
