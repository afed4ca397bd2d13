"""Imports of function_app, for which a new process waits before its first event, and of the commands."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from local.stack.parts import ROOT
from tests.support.pages import PRODUCT
from tests.support.watchdog import WATCHDOG_S

SERVICEBUS = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA"
COSMOS = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;"
SQL = "postgresql://127.0.0.1:1/shop"

IMPORTED = """
import json, sys
import azure.core.exceptions, azure.core.settings, azure.functions, orjson
import opentelemetry.metrics, opentelemetry.trace
# Each version of Python has more or fewer modules under these.
import decimal, importlib.resources, pathlib, shlex
before = set(sys.modules)
# Not in requirements.lock: importing one raises ModuleNotFoundError.
absent = {"cyclopts", "jinja2", "outbox_relay.command_line", "rich"}
sys.modules.update(dict.fromkeys(absent))
import function_app
print(json.dumps(sorted(set(sys.modules) - before - absent)))
"""

# Each is imported when something needs it first, if ever.
LATER = {
    *(
        "azure.cosmos",
        "azure.identity",
        "azure.servicebus",
        "azure.storage",
        "psycopg",
        "psycopg_binary",
        "mssql_python",
        "opentelemetry.sdk",
    ),
    *("outbox_relay.operator", "relay.large", "outbox_relay.outbox", "outbox_relay.inbox", "difflib"),
}
# Modules of one source. The commands and the console ask outbox_relay.operator.backends.backend instead.
FOR_COSMOS_ALONE = {"relay.backends.cosmos", "outbox_relay.operator.backends.cosmos"}
FOR_SQL_ALONE = {"outbox_relay.changefeed", "relay.backends.sql", "outbox_relay.operator.backends.sql"}
SOURCES = FOR_COSMOS_ALONE | FOR_SQL_ALONE


def imported(**settings: str) -> list[str]:
    """Return the names of the modules that function_app imports with these settings, without its SDKs."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COSMOS", "SQL")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        cwd=ROOT,
        env={**environment, "SERVICEBUS": SERVICEBUS, **settings},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)
    return names


def among(names: list[str], packages: set[str]) -> set[str]:
    """Those of the packages of which something was imported."""
    return {package for package in packages if any(f"{name}.".startswith(f"{package}.") for name in names)}


@pytest.mark.parametrize(
    ("settings", "not_these", "at_most"),
    [
        ({"COSMOS": COSMOS}, LATER | FOR_SQL_ALONE, 61),
        ({"SQL": SQL}, LATER | FOR_COSMOS_ALONE, 87),
    ],
    ids=["Cosmos DB", "SQL"],
)
def test_an_app_imports_what_its_outbox_needs_and_little_else(
    settings: dict[str, str], not_these: set[str], at_most: int
) -> None:
    names = imported(**settings)

    assert "relay.core.pipeline" in names
    assert among(names, not_these) == set()
    assert len(names) <= at_most


def imports_of(source: str) -> list[str]:
    """The modules, and what is taken of them, that a file imports anywhere."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            found += [each.name for each in node.names]
    return found


def tells_sources_apart(file: Path) -> bool:
    """Return True for a file that takes the outbox of one source from the settings, or imports one source."""
    source = file.read_text(encoding="utf-8")
    attributes = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    return bool(attributes & {"cosmos", "sql"} or among(imports_of(source), SOURCES))


def test_the_settings_and_the_backends_alone_tell_the_sources_apart() -> None:
    may = re.compile(
        r"relay/backends/|.*/outbox_relay/operator/backends/|relay/(core/place|config/settings|config/streams)\.py"
    )
    files = [ROOT / "function_app.py", *(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))]

    found = {file.relative_to(ROOT).as_posix() for file in files if tells_sources_apart(file)}

    assert found >= {"relay/backends/backend.py", "relay/backends/sql/backend.py", "relay/config/streams.py"}
    assert sorted(file for file in found if not may.match(file)) == []


def test_changefeed_alone_writes_the_names_of_a_feeds_tables() -> None:
    quoted = re.compile(r"""quoted\(f?["'](outbox|feed|state|claim):""")

    naming = [str(file) for file in (ROOT / "relay").rglob("*.py") if quoted.search(file.read_text("utf-8"))]

    assert naming == []
    assert quoted.search("""dialect.quoted(f'claim:{table}')""")
