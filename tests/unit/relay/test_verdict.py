"""The module that decides, compared with the tables of docs/guarantees.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config.settings import OnPoison
from relay.core.documents import SourceDocument
from relay.core.errors import BlockedError, DoubtfulRefusalError, PoisonError, RefusedAlikeError
from relay.core.events import Event, Reason
from relay.core.holds import Order
from relay.core.verdict import (
    FOR_AN_ORDER,
    History,
    Judge,
    Ruling,
    Standing,
    Verdict,
    after_refusal,
    before_sending,
    error_of,
    isolates,
    reason_of,
    set_aside,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guarantees.md"
INVALID = Reason.DATA_NOT_OBJECT

ORDERS = {
    "none": None,
    "given": Order(),
    "unconfirmed": Order(reason=Reason.MESSAGE_TOO_LARGE),
    "carried out": Order(carried_out=True),
}
DOCUMENTS = {"sound": (None, True), "invalid": (INVALID, True), "invalid without a key": (INVALID, False)}
KEYS = {
    "free": (False, None),
    "parked": (True, None),
    "behind an event that holds it back": (False, FOR_AN_ORDER),
}


def table(heading: str) -> list[dict[str, str]]:
    """The rows of the table whose first column is `heading`."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(rf"\| {heading} \|", line))
    names = cells(lines[start])
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def by_table(rows: list[dict[str, str]], state: Mapping[str, str]) -> str:
    """The verdict of the first row that applies."""
    for row in rows:
        conditions = {name: cell for name, cell in row.items() if name != "verdict" and cell}
        if all(state[name] in cell.split(", ") for name, cell in conditions.items()):
            return row["verdict"]
    raise AssertionError(f"no row applies to {state}")


def in_words(verdict: Verdict, own: Reason | None, decided: Reason | None = None) -> str:
    if verdict.ruling is Ruling.SET_ASIDE and verdict.reason is decided is not None:
        return "set aside: as decided before"
    if verdict.ruling is Ruling.SET_ASIDE:
        return f"set aside: {'its own reason' if verdict.reason is own else verdict.reason}"
    if verdict.ruling is Ruling.WAIT:
        return f"waits for {'a predecessor' if verdict.awaited == 'a predecessor' else verdict.awaited}"
    return str(verdict.ruling)


BEFORE = table("accepted")
AFTER = table("refused")


def test_before_it_is_sent_the_verdict_is_the_tables() -> None:
    for accepted, passed, order, document, policy, key in product(
        (True, False), (True, False), ORDERS, DOCUMENTS, OnPoison, KEYS
    ):
        (invalid, has_key), (parked, earlier) = DOCUMENTS[document], KEYS[key]
        standing = Standing(accepted, passed, ORDERS[order], invalid, has_key, parked, earlier)
        state = {
            "accepted": "yes" if accepted else "no",
            "passed": "yes" if passed else "no",
            "order": order,
            "document": document,
            "policy": str(policy),
            "its key": key,
        }

        decided = Reason.MESSAGE_TOO_LARGE if order == "unconfirmed" else None
        assert in_words(before_sending(standing, policy), invalid, decided) == by_table(BEFORE, state), state


def test_after_a_refusal_the_verdict_is_the_tables() -> None:
    for condition, refusals, alike, accepted, policy, too_large in product(
        ("", "amqp:not-allowed"), range(1, 6), range(1, 7), range(8), OnPoison, (True, False)
    ):
        refusal = PoisonError("no", condition=condition, too_large=too_large)
        state = {
            "refused": "by the service" if condition else "by a limit known beforehand",
            "keys refused alike": "3 or more" if alike >= 3 else "fewer",
            "transfers accepted since": "fewer than these keys" if accepted < alike else "enough",
            "refusals": "fewer than 3" if refusals < 3 else "3 or more",
            "policy": str(policy),
        }

        verdict = after_refusal(refusal, History(refusals, alike, accepted), policy)

        found = in_words(verdict, reason_of(refusal)).removesuffix(": its own reason")
        assert found == by_table(AFTER, state), state


@given(refusals=st.integers(1, 1000), alike=st.integers(3, 1000), policy=st.sampled_from(OnPoison))
def test_where_nothing_is_accepted_nothing_is_poison_however_long_it_lasts(
    refusals: int, alike: int, policy: OnPoison
) -> None:
    assert after_refusal(PoisonError("no", condition="c"), History(1, 1, 0), policy).ruling is Ruling.WAIT
    assert (
        after_refusal(PoisonError("no", condition="c"), History(refusals, alike, 0), policy).ruling is Ruling.WAIT
    )


def test_a_command_whose_records_stay_needs_no_evidence() -> None:
    judge = Judge(OnPoison.PARK, needs_evidence=False)

    assert judge.refused(PoisonError("no", condition="c"), History(1, 1, 0)) == set_aside(Reason.MESSAGE_REFUSED)
    assert judge.stops_behind
    assert not Judge(OnPoison.SKIP, needs_evidence=False).stops_behind


@pytest.mark.parametrize(
    ("history", "policy", "error"),
    [
        (History(1, 1, 0), OnPoison.SKIP, DoubtfulRefusalError),
        (History(3, 3, 2), OnPoison.SKIP, RefusedAlikeError),
        (History(3, 1, 0), OnPoison.BLOCK, BlockedError),
    ],
)
def test_an_event_that_waits_says_what_for_and_what_was_said(
    history: History, policy: OnPoison, error: type[Exception]
) -> None:
    event = Event("e1", "k", "domainEvent", "A", {}, SourceDocument.plain({"id": "e1"}))
    refusal = PoisonError("the service said no.", condition="amqp:not-allowed")

    made = error_of(after_refusal(refusal, history, policy), event, refusal)

    assert type(made) is error
    assert "the service said no." in str(made)


def test_an_error_that_may_pass_is_traced_from_the_third_retry_on() -> None:
    assert [isolates(count) for count in range(5)] == [False, False, False, True, True]
