"""For all tests: a node id of their own, which names its group where pytest-xdist runs it; PostgreSQL and Azurite.

Of what was skipped, each reason is shown once.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.support import leaks, local_services, watchdog
from tests.support.azurite import azurite, blobs
from tests.support.closing import close_later
from tests.support.postgresql import changefeed_database, outbox_database, postgres_database, postgres_server
from tests.support.skips import pytest_terminal_summary

__all__ = [
    "azurite",
    "blobs",
    "changefeed_database",
    "close_later",
    "outbox_database",
    "postgres_database",
    "postgres_server",
    "pytest_terminal_summary",
]


_SLOW_MODULE = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b", re.MULTILINE)

# On a busy machine an example takes as long as it takes. A test has the same examples in each run, by its source;
# only `make fuzz`, which sets a number of them, draws fresh ones.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", _patient, derandomize=True)
settings.register_profile("fuzz", _patient, derandomize=False)
settings.load_profile("fuzz" if "FUZZ_EXAMPLES" in os.environ else "tests")
if "FUZZ_EXAMPLES" not in os.environ:
    # Hypothesis (6.170) draws constants of the modules that a process happens to have imported, too.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--order`, so that tests which depend on each other are found."""
    parser.addoption("--order", metavar="SEED|reversed", help="run the tests in a random order, or reversed")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register hooks as plugins, as those of a conftest.py are not called for fixtures of the session.

    pytest closes its folder of temporary files to other users whenever it starts. If this process is root, its
    PostgreSQL runs as another user, and needs a folder that another run of pytest leaves alone.
    """
    if config.option.basetemp is None and getattr(os, "geteuid", lambda: 1)() == 0:
        folder = tempfile.TemporaryDirectory(prefix="pytest-", ignore_cleanup_errors=True)
        config.option.basetemp = str(Path(folder.name) / "tests")
        config.add_cleanup(folder.cleanup)
    for plugin in (leaks, watchdog, local_services):
        if not config.pluginmanager.is_registered(plugin):
            config.pluginmanager.register(plugin)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no slow tests for the quick ones: some need packages that only `make test-slow` installs."""
    if config.option.markexpr != "not slow" or not collection_path.name.startswith("test_"):
        return None
    return True if _SLOW_MODULE.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs Azurite as slow: npm installs it."""
    if "azurite" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Escape half surrogate pairs in reports: pytest-xdist (3.8) cannot send them, and the whole run would end."""
    return _sendable((yield))


def _sendable(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_sendable(key): _sendable(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(_sendable(inner) for inner in value)
        case _:
            return value


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, give those of schemathesis (4.32) their own ids, and refuse ids that occur twice.

    pytest-xdist (3.8) runs one test of each id, and leaves out the others without a word.
    """
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if not item.nodeid.endswith(item.name):
            item._id = item.id.with_params(item.name.partition("[")[2].removesuffix("]"))
        if group is not None and hasattr(item.config, "workerinput"):
            # pytest-xdist's own setting has no effect since pytest 9.2.
            item._id = coerce_node_id(f"{item.nodeid}@{group.args[0]}")
    repeated = [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]
    if repeated:
        raise pytest.UsageError(f"only one test of each of these ids would run: {repeated}")
    order = config.getoption("order")
    if order == "reversed":
        items.reverse()
    elif order is not None:
        random.Random(order).shuffle(items)
