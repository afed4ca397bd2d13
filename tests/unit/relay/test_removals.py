"""The traces of a record that an operator has removed from quarantine."""

from __future__ import annotations

import getpass
from dataclasses import replace
from typing import Any

import pytest

from outbox_relay.operator.outcomes import Outcome, Removal, Removed
from relay.quarantine.items import RecordSummary

SUMMARY = RecordSummary("r1", "k", "data-invalid", "no object", "2026-01-02", 3, "i1", "e1", 0, (7, 2))


@pytest.mark.parametrize("changes", [{}, {"document_id": None}, {"committed": None}, {"committed": ("01", 0)}])
def test_an_outcome_says_which_record_it_was_and_where_in_the_feed(changes: dict[str, Any]) -> None:
    summary = replace(SUMMARY, **changes)

    item = Removal(Outcome.DISCARDED, "jo", "a test order").item(summary)
    found = Removed.of(item)

    assert (found.outcome, found.by, found.why) == (Outcome.DISCARDED, "jo", "a test order")
    assert (found.record_id, found.partition_key, found.reason) == ("r1", "k", "data-invalid")
    assert (found.document_id, found.committed) == (summary.document_id, summary.committed)
    assert (found.quarantined_at, found.at) == ("2026-01-02", item["at"])


def test_an_outcome_has_about_a_month_to_live() -> None:
    assert Removal(Outcome.RELEASED, "jo").item(SUMMARY)["ttl"] == pytest.approx(30 * 24 * 3600, abs=60)


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 1234"), OSError("No username set")])
def test_an_account_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> str:
        # KeyError up to Python 3.12, OSError since (https://docs.python.org/3/library/getpass.html).
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)

    assert Removal.by_this_account(Outcome.RELEASED).by == "unknown"


def test_a_removal_is_by_the_account_that_the_process_runs_as() -> None:
    assert Removal.by_this_account(Outcome.RELEASED, "mended") == Removal(
        Outcome.RELEASED, getpass.getuser(), "mended"
    )
