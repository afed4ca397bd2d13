"""The queries of the runbook, asked by its shell functions, on rows of the real exporter and of the services."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from outbox_relay.operator.cli.options import parse_env_file
from relay.core.times import parse_duration
from tests.infra.workspace import Row, Rows, Workspace
from tests.support.pages import PAGES, ROOT, SHELL, blocks
from tests.support.watchdog import WATCHDOG_S
from tests.telemetry.tables import ago
from tests.unit.test_documented_names import page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

RUNBOOK = ROOT / "docs" / "runbook.md"
PLAIN = {
    "SQL": "Server=tcp:s.database.windows.net,1433;Database=d;Encrypt=yes;Authentication=ActiveDirectoryDefault",
    "SQL_2": "postgresql://me%40example.org@s:5432/d?sslmode=verify-full&sslrootcert=system",
    "SQL_FEED": "",
}
"""docker run --env-file takes a quote for a part of the value."""
SETTINGS = {**PLAIN, "SQL_3": "Driver=ODBC Driver 18;Server=s", "RELAY_CLOUDEVENTS_SOURCE": "/it's/$x"}

# Answers as the Azure CLI does: the settings of the deployment, or a name. Of a query it keeps text and range.
AZ = """#!/bin/bash
case "$*" in
  *properties.outputs.settings.value*) cat settings.json; exit ;;
  "monitor log-analytics query"*) ;;
  *) echo name; exit ;;
esac
while [ $# -gt 0 ]; do
  case "$1" in
    --analytics-query) case "$2" in @*) cp "${2#@}" query.kql ;; *) printf %s "$2" > query.kql ;; esac; shift ;;
    -t) printf %s "$2" > range; shift ;;
  esac
  shift
done
"""


class Shell:
    """A shell that was set up as the runbook says, with the Azure CLI replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "az").write_text(AZ)
        (folder / "bin" / "az").chmod(0o755)
        (folder / "infra").symlink_to(ROOT / "infra")
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        group, self._set_up, *_ = [block.text for block in blocks(RUNBOOK) if block.language == SHELL]
        # Not the file of an operator on this machine.
        self._set_up = group + self._set_up.replace("/tmp/", f"{folder}/")

    def run(self, line: str) -> None:
        """Run a line of the page."""
        subprocess.run(
            ["bash", "-euc", f"{self._set_up}\n{line}"],
            cwd=self.folder,
            env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"},
            capture_output=True,
            timeout=WATCHDOG_S,
            check=True,
        )

    def asked(self, line: str) -> tuple[str, str]:
        """The query that a line asks, and its time range."""
        self.run(line)
        return (self.folder / "query.kql").read_text(), (self.folder / "range").read_text()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def asks() -> list[str]:
    """Each `ask` of the page, in its blocks and in its sentences."""
    return sorted(set(re.findall(r"(?:^|`)(ask [a-z/]+(?: P\w+)?)(?:$|`)", page("docs/runbook.md"), re.MULTILINE)))


def test_the_settings_of_a_deployment_become_an_env_file(shell: Shell) -> None:
    shell.run("true")

    written = (shell.folder / "relay.env").read_text()
    assert parse_env_file(written, "relay.env") == SETTINGS
    assert written.splitlines()[: len(PLAIN)] == [f"{name}={value}" for name, value in PLAIN.items()]


def test_only_the_runbook_says_how_the_settings_become_an_env_file() -> None:
    assert [page for page in PAGES if "to_entries" in page.read_text(encoding="utf-8")] == [RUNBOOK]


def host_log(message: str, why: str = "", level: str = "Warning") -> Row:
    at = {"TimeGenerated": ago(minutes=1), "Level": level, "Category": "Host", "ExceptionType": ""}
    return at | {"Message": message, "ExceptionMessage": why}


def states() -> dict[str, tuple[Rows | None, dict[str, str]]]:
    """By query, rows where those of a relay that has failed do not do, and what the page says of the answer."""
    stops = host_log("Lease 3 encountered an unhandled user exception during processing.", "MaxDepth of 64")
    unindexed = host_log("Worker failed to index functions", "ModuleNotFoundError")
    age = {"TimeGenerated": ago(minutes=1), "Name": "relay.feed.age", "Sum": 400, "Properties": {"lease": "none"}}
    written = {"CollectionName": "data", "OperationName": "Batch", "StatusCode": 200}
    refused = {"Category": "Ingestion", "Operation": "Data collection stopped", "Level": "Warning"}
    refused |= {"Detail": "The data ingestion has stopped. Status of subscription is OverQuota."}
    of = {"topic": "domain-events", "subscription": "billing"}
    late = {"TimeGenerated": ago(minutes=1), "Name": "inbox.lag", "Sum": 400, "Max": 400, "ItemCount": 1}
    failed = {"TimeGenerated": ago(minutes=1), "Name": "inbox.retries", "Sum": 9}
    held = {"TimeGenerated": ago(minutes=1), "Name": "inbox.sessions", "Sum": 16, "Properties": of}
    return {
        "consumers/failing": (
            {"AppMetrics": [failed | {"Properties": of | {"error": "KeyError"}}]},
            {"What": "failed: KeyError"},
        ),
        "consumers/lag": ({"AppMetrics": [late | {"Properties": of}]}, {"LagSeconds": "400"}),
        "consumers/sessions": ({"AppMetrics": [held]}, {"Sessions": "16"}),
        "failing": (None, {"Error": "ConfigurationError", "Says": "Set the topic's status to Active"}),
        "headroom": (None, {}),
        "host": ({"FunctionAppLogs": [host_log("Forbidden", level="Error")]}, {"Says": "Forbidden"}),
        "lag": (None, {}),
        "quarantine": (None, {"Reason": "data-not-object"}),
        "quota": ({"_LogOperation": [refused | {"TimeGenerated": ago(minutes=2)}]}, {"Detail": "OverQuota"}),
        "sends": (None, {}),
        "silent": (
            {"CDBDataPlaneRequests5M": [written | {"TimeGenerated": ago(minutes=15)}]},
            {"Sign": "the outbox is written to"},
        ),
        "undelivered": ({"FunctionAppLogs": [stops]}, {"Lease": "3", "Says": "MaxDepth of 64"}),
        "unloaded": ({"FunctionAppLogs": [unindexed]}, {"Says": "Worker failed to index functions"}),
        "unpublished": ({"AppMetrics": [age]}, {"Partition": "lease none"}),
    }


async def test_each_query_of_the_page_answers_as_it_says(shell: Shell, lived: Rows) -> None:
    known = states()
    assert {line.split()[1] for line in asks()} == set(known)
    for line in asks():
        rows, says = known[line.split()[1]]
        query, span = shell.asked(line)
        with Workspace(lived if rows is None else rows) as workspace:
            answers = workspace.query(query)

        assert answers, line
        assert all(any(text in str(row[column]) for row in answers) for column, text in says.items()), line
        assert span == (line.split()[2] if line.count(" ") == 2 else "PT1H")
        assert parse_duration(span)


def test_what_takes_up_the_quota_is_asked_of_the_workspace(shell: Shell) -> None:
    [block] = [block.text for block in blocks(RUNBOOK) if "'Usage |" in block.text]
    used: list[Row] = [
        {"TimeGenerated": ago(hours=1), "DataType": kind, "Quantity": megabytes}
        for kind, megabytes in (("AppTraces", 5.0), ("AppMetrics", 2.0), ("AppTraces", 4.0))
    ]

    query, span = shell.asked(block[block.index("az monitor") :])
    with Workspace({"Usage": used}) as workspace:
        answers = workspace.query(query)

    assert (span, answers) == (
        "P1D",
        [{"DataType": "AppTraces", "Megabytes": 9.0}, {"DataType": "AppMetrics", "Megabytes": 2.0}],
    )
