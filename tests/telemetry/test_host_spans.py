"""The part of the Functions host's own spans that the workspace drops, and how much that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.infra.project import ROOT
from tests.infra.workspace import Row, Workspace
from tests.support.outbox import events
from tests.telemetry.conftest import WorkerMaker
from tests.telemetry.host_spans import LEASES, LOCK, MINUTES_A_DAY, POLLS, a_minute, billed_bytes
from tests.telemetry.ingestion import Ingestion
from tests.telemetry.tables import rows_of

# One process translates the queries for all of a group.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("queries")]

TRANSFORMATION = ROOT / "infra" / "transformations" / "dependencies.kql"
QUOTA_BYTES = 5e9


def stored(rows: list[Row], transformation: Path = TRANSFORMATION) -> list[Row]:
    """The rows that the workspace stores. As in Azure's editor, the table takes the place of `source`."""
    text = transformation.read_text(encoding="utf-8").replace("source", "AppDependencies", 1)
    numbered = [row | {"Name": str(number)} for number, row in enumerate(rows)]
    with Workspace({"AppDependencies": numbered}) as workspace:
        return [rows[int(row["Name"])] for row in workspace.query(text)]


@pytest.mark.parametrize("http", [False, True], ids=["operations", "requests"])
def test_an_idle_minute_of_the_host_is_dropped(http: bool) -> None:
    minute = a_minute(http=http)

    assert len(minute) == POLLS + LEASES + LOCK == 573
    assert stored(minute) == []


def test_an_operation_is_dropped_whatever_address_the_account_has() -> None:
    addresses = ("", "10.0.0.4 | outbox", "cosmos.internal.example.com | outbox")

    assert stored([row | {"Target": address} for row in a_minute()[:1] for address in addresses]) == []


@pytest.mark.parametrize("http", [False, True], ids=["operations", "requests"])
def test_what_fails_is_stored(http: bool) -> None:
    minute = a_minute(http=http, failed=7)

    assert stored(minute) == minute[:7]


async def test_the_relays_own_span_is_stored(worker: WorkerMaker, ingestion: Ingestion) -> None:
    async with worker(OTEL_TRACES_SAMPLER="always_on") as process:
        await process.handle(events("a", 3))
        await process.ask(flush=True)
    spans = rows_of(ingestion.envelopes)["AppDependencies"]

    assert [row["Name"] for row in spans] == ["relay"]
    assert stored([*a_minute(), *spans]) == spans


def test_dependencies_of_others_are_stored() -> None:
    [first, *_] = a_minute(http=True)
    others = [
        first | {"Target": "orders.example.com"},
        first | {"DependencyType": "SQL", "Target": "shop.database.windows.net | shop"},
        first | {"DependencyType": None, "Target": None},
    ]

    assert stored(others) == others


def test_the_page_says_how_much_it_is() -> None:
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    minute = a_minute()
    rows, size = len(minute) * MINUTES_A_DAY, sum(map(billed_bytes, minute)) * MINUTES_A_DAY

    assert f"{rows:,}".replace(",", " ") + " rows a day" in page
    assert f"{size / 1e9:.1f} GB a day" in page
    assert f"{size / QUOTA_BYTES:.0%} of the daily quota".replace("%", " %") in page
