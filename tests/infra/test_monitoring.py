"""Invalid queries are rejected, and the scripts and names of the operators' pages are valid."""

from __future__ import annotations

import ast
import re

import pytest

from tests.infra import instruments
from tests.infra.kql import KqlError, Query
from tests.infra.project import ROOT, Project

pytestmark = pytest.mark.slow

OPERATIONS = "\n".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("deployment.md", "runbook.md")
)
RUNNING = 'AppMetrics\n| where Name == "relay.lag"\n| summarize Late = max(Max) by bin(TimeGenerated, 5m)\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RUNNING.replace("max(Max)", "max(Max"), "could not parse"),
        (RUNNING.replace("max(Max)", "max(Max))"), "could not parse"),
        (RUNNING.replace("where", "were"), "could not parse"),
        (RUNNING.replace("max(Max)", "most(Max)"), "unsupported KQL construct 'aggregate:most'"),
        (RUNNING.replace("Max)", "Maximum)"), 'column "Maximum" not found'),
        (RUNNING.replace("Name", "name"), "no column name: column names are case-sensitive"),
        (RUNNING.replace("AppMetrics", "customMetrics"), "customMetrics does not exist"),
        (RUNNING.replace('"relay.lag"', '"relay.lag'), "could not parse"),
        (RUNNING + "|", "could not parse"),
        (RUNNING + '| where Message == "x"', 'column "Message" not found'),
        (RUNNING + '| where Min == "x"', 'column "Min" not found'),
        ("let late = 5m;\n" + RUNNING, "late is not used"),
        ("let late = 5m;", "no query statement"),
        (RUNNING + ";\n" + RUNNING, "only a single query"),
    ],
)
def test_an_invalid_query_is_rejected(text: str, says: str) -> None:
    Query("running.kql", RUNNING)

    with pytest.raises(KqlError, match=says):
        Query("broken.kql", text)


def test_a_query_lists_what_it_uses() -> None:
    query = Query(
        "x.kql",
        "// How late? In seconds.\n// And more.\nlet least = 1;\nAppMetrics\n"
        '| where Name in ("relay.lag", "relay.sends") and Name == "relay.x"\n'
        "| where Sum > least\n| extend Why = tostring(Properties.reason)",
    )

    assert query.header == "How late? In seconds. And more."
    assert query.tables == {"AppMetrics"}
    assert query.metrics == {"relay.lag", "relay.sends", "relay.x"}
    assert query.properties == {"reason"}
    assert (query.lets, query.columns) == ({"least"}, {"Why"})


def test_the_relays_instruments_and_log_fields_are_found_in_its_source() -> None:
    kinds = instruments.instruments()

    assert len(kinds) == 12
    assert (kinds["relay.sends"], kinds["relay.lag"]) == ("counter", "histogram")
    assert kinds["relay.ttl.headroom"] == "gauge"
    assert instruments.log_actions() == {"relay_batch", "quarantine", "relay_failed", "relay_blocked"}
    assert {"error", "unsent", "action"} <= instruments.log_fields()


def test_every_script_of_the_runbook_can_import_its_modules() -> None:
    scripts = re.findall(r"python - <<'PY'\n(.+?)\nPY$", OPERATIONS, re.MULTILINE | re.DOTALL)

    assert scripts
    for script in scripts:
        tree = ast.parse(script)
        imports: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), "runbook.md", "exec"), {})


def test_every_query_of_the_runbook_exists() -> None:
    asked = set(re.findall(r"^ask ([\w/]+)", OPERATIONS, re.MULTILINE))
    asked |= set(re.findall(r"`ask ([\w/]+)", OPERATIONS))

    assert asked == {
        *("failing", "headroom", "host", "lag", "quarantine", "quota", "sends", "silent", "undelivered"),
        *("unloaded", "unpublished"),
        *("consumers/failing", "consumers/lag", "consumers/sessions"),
    }
    for name in asked:
        assert (ROOT / f"infra/queries/{name}.kql").is_file()


def test_every_parameter_of_the_runbook_exists() -> None:
    project = Project(ROOT)
    declared = {*project.declared("main.bicep"), *project.declared("sql.bicep")}
    thresholds = set(re.findall(r"^\| `(\w+)` \| \d+ \|", OPERATIONS, re.MULTILINE))
    named = set(re.findall(r"`([a-z]+[A-Z]\w*)(?: = [^`]*)?`", OPERATIONS)) - {"receiverPrincipalIds"}

    assert len(named) > 15
    assert named <= declared | thresholds
