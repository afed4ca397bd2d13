"""Campaigns in which rules change while processes end: each event goes by the rules of its commit time."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.chaos.command import ERRORS
from tests.support.campaigns import campaign
from tests.support.watchdog import CAMPAIGN

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

CHANGES = 5
OPTIONS = (
    *("--seed", "1", "--events", "500", "--rate", "20", "--hosts", "2", "--consumers", "16"),
    *("--destinations", "3", "--rule-changes", str(CHANGES), "--once"),
)


@CAMPAIGN
@pytest.mark.parametrize(
    ("source", "kinds"),
    [("cosmos", "kill-host,kill-machine,silent-leases,drop-after"), ("sql", "kill-relay,stop-relay,kill-backend")],
)
async def test_a_campaign_with_changes_of_rules_ends_in_zeros(tmp_path: Path, source: str, kinds: str) -> None:
    code, summary, errors = await campaign(
        tmp_path,
        *(*OPTIONS, "--source", source, "--outboxes", "2"),
        *("--faults", "6", "--only", kinds, "--patience", "120"),
    )

    assert {name: summary[name] for name in ERRORS} == dict.fromkeys(ERRORS, 0), errors
    assert (code, summary["live"]) == (0, True), errors
    assert summary["quarantined"] == summary["expected_quarantined"]
    # A generation that has not begun when the next one is added is left out.
    assert all(2 <= number <= CHANGES + 1 for number in summary["generations"].values())
    assert sum(times for what, times in summary["rule_changes"].items() if what != "rollback") == CHANGES


@CAMPAIGN
async def test_the_checker_detects_that_changed_rules_count_at_once(tmp_path: Path) -> None:
    """An event that one stream has passed, and the other has not read, is lost to both."""
    code, summary, errors = await campaign(
        tmp_path,
        *(*OPTIONS, "--rules-at-once", "--faults", "1", "--only", "kill-machine", "--patience", "8"),
    )

    assert code == 1, errors
    assert summary["missing"] > 0
    assert summary["misrouted"] > 0
    assert not summary["live"]
