"""The workbook's panels on rows of the real exporter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.infra.project import ROOT
from tests.infra.workspace import Row, Rows, Workspace
from tests.telemetry.tables import ago

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

QUERIES = sorted((ROOT / "infra" / "queries").glob("*.kql"))


def panel(rows: Rows, name: str) -> list[Row]:
    """The answer to one query file."""
    with Workspace(rows) as workspace:
        return workspace.query((ROOT / "infra" / "queries" / f"{name}.kql").read_text(encoding="utf-8"))


def added_up(rows: Rows, name: str, column: str) -> float:
    """A column's sum over the panel's intervals, as a run may lie across the border of two."""
    return float(sum(row[column] for row in panel(rows, name)))


async def test_every_panel_shows_what_happened(lived: Rows) -> None:
    assert panel(lived, "arriving") == [
        {"Arriving": "No: attempts fail", "Published": 34, "Quarantined": 1, "FailedAttempts": 1}
    ]
    documents = {name: added_up(lived, "documents", name) for name in ("Received", "Ignored", "Redelivered")}
    assert documents == {"Received": 33 + 4 + 4, "Ignored": 2, "Redelivered": 4}
    assert added_up(lived, "documents", "Quarantined") == 1
    assert {row["Action"] for row in panel(lived, "events")} == {"ContactCreatedEvent", "ContactNameUpdatedEvent"}
    assert added_up(lived, "events", "Published") == 34
    assert [(row["Reason"], row["Quarantined"]) for row in panel(lived, "quarantine")] == [("data-not-object", 1)]
    [failing] = panel(lived, "failing")
    assert (failing["Error"], failing["Failures"], failing["MostUnsent"], failing["Still"]) == (
        "ConfigurationError",
        1,
        4,
        True,
    )
    assert "Set the topic's status to Active" in failing["Says"]
    assert all(10 <= row["AverageSeconds"] <= row["LagSeconds"] < 90 for row in panel(lived, "lag"))
    assert all(1 < row["HeadroomHours"] < 2 for row in panel(lived, "headroom"))
    assert added_up(lived, "sends", "Sends") == 3
    for row in panel(lived, "sends"):
        assert 0 < row["AverageMs"] <= row["SlowestMs"]
    [of_stream] = panel(lived, "streams")
    assert (of_stream["Stream"], of_stream["Published"], of_stream["Quarantined"]) == ("default", 34, 1)
    assert (of_stream["FailedAttempts"], of_stream["LagSeconds"] >= 10) == (1, True)
    assert [panel(lived, name) for name in ("silent", "undelivered", "host", "quota")] == [[], [], [], []]


def test_each_stream_has_a_line_of_its_own() -> None:
    """The age of what waits has the stream in the name of its lease, and everything else as an attribute."""

    def measured(name: str, **properties: str) -> Row:
        return {"TimeGenerated": ago(minutes=1), "Name": name, "Sum": 7.0, "Max": 5.0, "Properties": properties}

    failed = {"action": "relay_failed", "stream": "orders", "error": "PublishError", "invocation_id": "i"}
    rows: Rows = {
        "AppMetrics": [
            measured("relay.events.published"),
            measured("relay.lag"),
            measured("relay.feed.age", lease="0"),
            measured("relay.feed.age", lease="orders/0") | {"Sum": 900.0},
            measured("relay.feed.age", shard="audit/3"),
        ],
        "AppTraces": [{"TimeGenerated": ago(minutes=2), "Message": "", "Properties": failed}] * 2,
    }

    columns = ("Stream", "Published", "Quarantined", "FailedAttempts", "LagSeconds", "WaitingSeconds")
    found = [tuple(row[column] for column in columns) for row in panel(rows, "streams")]
    # The sick one is first.
    assert found[0] == ("orders", 0.0, 0, 2, 0.0, 900.0)
    assert sorted(found) == [
        ("audit", 0.0, 0, 0, 0.0, 7.0),
        ("default", 7.0, 0, 0, 5.0, 7.0),
        ("orders", 0.0, 0, 2, 0.0, 900.0),
    ]


async def test_the_hosts_errors_are_shown_by_where_they_come_from() -> None:
    error = {
        "Level": "Error",
        "Category": "Host.Startup",
        "ExceptionType": "System.Exception",
        "Message": "x" * 900,
    }
    logged: Rows = {"FunctionAppLogs": [error | {"TimeGenerated": ago(minutes=minute)} for minute in (3, 1, 2)]}

    [shown] = panel(logged, "host")

    assert (shown["Errors"], shown["Category"], shown["Says"]) == (3, "Host.Startup", "x" * 500)


def test_what_the_host_cannot_hand_over_is_shown_with_the_start_of_its_reason() -> None:
    says = "Lease 3 encountered an unhandled user exception during processing."
    seen = {"TimeGenerated": ago(minutes=1), "OuterMessage": says.ljust(400, "."), "InnermostMessage": "x" * 400}

    [shown] = panel({"AppExceptions": [seen]}, "undelivered")

    assert (shown["Lease"], shown["Warnings"], shown["LastSeen"]) == ("3", 1, seen["TimeGenerated"])
    assert shown["Says"] == says.ljust(300, ".") + " " + "x" * 300


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_an_empty_workspace_shows_nothing(file: Path) -> None:
    with Workspace({}) as workspace:
        shown = workspace.query(file.read_text(encoding="utf-8"))

    no_events = {"Arriving": "No events", "Published": 0, "Quarantined": 0, "FailedAttempts": 0}
    no_reason = "the host names no reason: the app is stopped, or telemetry does not arrive"
    expected = {"arriving": [no_events], "unloaded": [{"Reports": 0, "Says": no_reason}]}
    assert shown == expected.get(file.stem, [])
