"""Short fault campaigns with an SQL source: every error count is zero; without a safeguard, one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.chaos import edge_cases, schedule
from local.chaos.sql.side import SqlSide
from tests.integration.test_chaos import WRONG, assert_is_live, campaign

# What a campaign with one fault of each kind meets, whatever the seed.
# That a worker is killed within a page is nearly certain only.
SOUGHT = {
    *("claim-taken-over", "delivered-again"),
    *SqlSide.causes.keys() - {"relay-killed-within-a-page"},
}


@pytest.mark.timeout(240)
async def test_a_campaign_with_every_kind_of_fault_ends_in_zeros(tmp_path: Path) -> None:
    code, summary, errors = await campaign(
        tmp_path,
        *("--source", "sql", "--seed", "7", "--rate", "75", "--events", "600"),
        *("--hosts", "2", "--consumers", "16", "--faults", str(len(schedule.SQL_KINDS))),
    )

    assert {name: summary[name] for name in WRONG} == dict.fromkeys(WRONG, 0), errors
    assert summary["quarantined"] == summary["expected_quarantined"] > 0
    assert (code, summary["events"], summary["seed"]) == (0, 600, 7)
    met = summary["edges"].keys()
    assert met <= SqlSide.known | edge_cases.BROKER_KNOWN
    assert met >= SOUGHT


@pytest.mark.timeout(300)
async def test_a_campaign_in_which_an_operator_sets_blocking_events_aside_is_live(tmp_path: Path) -> None:
    await assert_is_live(tmp_path, "block", schedule.PEER_KINDS | schedule.EVENT_KINDS, "--source", "sql")


@pytest.mark.timeout(240)
async def test_the_checker_detects_a_cursor_that_is_stored_before_its_events_are_published(
    tmp_path: Path,
) -> None:
    code, summary, errors = await campaign(
        tmp_path,
        *("--source", "sql", "--seed", "1", "--hosts", "2", "--patience", "15", "--events", "400"),
        *("--only", "disable-entity,stop-relay", "--faults", "24", "--rate", "80"),
        *("--worker", "tests.support.weakened_worker"),
    )

    assert code == 1, errors
    # Far from all: the campaign went on to its end.
    assert 0 < summary["missing"] < summary["events"], summary
    assert "its key's deliveries were" in errors


def test_a_seed_gives_the_same_schedule_again_and_every_kind_strikes() -> None:
    drawn = schedule.draw(5, events=1000, faults=60, among=schedule.SQL_KINDS)

    assert drawn == schedule.draw(5, events=1000, faults=60, among=schedule.SQL_KINDS)
    assert {fault.kind for fault in drawn} == {kind for kind, weight in schedule.SQL_KINDS.items() if weight}
