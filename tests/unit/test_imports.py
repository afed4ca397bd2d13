"""What importing function_app imports beside its SDKs: a new process waits for it before its first event."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from local.stack.parts import ROOT

SERVICEBUS = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA"
COSMOS = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;"
SQL = "postgresql://127.0.0.1:1/shop"

IMPORTED = """
import json, sys
import azure.functions, azure.servicebus.aio, orjson, opentelemetry.metrics, opentelemetry.trace
before = set(sys.modules)
# Not in requirements.txt: importing it raises ModuleNotFoundError.
sys.modules["jinja2"] = None
import function_app
print(json.dumps(sorted(set(sys.modules) - before - {"jinja2"})))
"""

# Each is imported when something needs it first, if ever.
LATER = {
    *(
        "azure.cosmos",
        "azure.identity",
        "psycopg",
        "psycopg_binary",
        "mssql_python",
        "opentelemetry.sdk",
    ),
    *("relay.cli", "relay.console", "outbox", "inbox", "difflib"),
}
FOR_SQL_ALONE = {"changefeed", "relay.sql"}


def imported(**settings: str) -> list[str]:
    """The names of the modules that function_app imports with these settings beside its SDKs."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COSMOS", "SQL")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        cwd=ROOT,
        env={**environment, "SERVICEBUS": SERVICEBUS, **settings},
        capture_output=True,
        text=True,
        timeout=60,
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
        ({"COSMOS": COSMOS}, LATER | FOR_SQL_ALONE, 65),
        ({"SQL": SQL}, LATER, 95),
    ],
    ids=["Cosmos DB", "SQL"],
)
def test_an_app_imports_what_its_outbox_needs_and_little_else(
    settings: dict[str, str], not_these: set[str], at_most: int
) -> None:
    names = imported(**settings)

    assert "relay.pipeline" in names
    assert among(names, not_these) == set()
    assert len(names) <= at_most
