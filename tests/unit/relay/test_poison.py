"""What follows a poisoned event: published, parked or blocked."""

from __future__ import annotations

from typing import Any

import pytest

from relay.cosmos.documents import select
from relay.errors import AccountingError, BlockedError, RetryableError
from relay.events import Event, Reason, Received, Rejected
from relay.holds import Holds
from relay.poison import Plan, conclude, plan
from relay.results import KeyOutcome, Outcome
from relay.settings import OnPoison
from tests.support.outcomes import accounted_for

SKIP, PARK, BLOCK = OnPoison.SKIP, OnPoison.PARK, OnPoison.BLOCK


def document(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": "A"}} | changes


def selection(*documents: dict[str, Any]) -> Received:
    return select(documents, "domainEvent")


MALFORMED = {"data": "text"}


def made(
    chosen: Received, policy: OnPoison, holds: Holds | None = None, accepted: frozenset[str] = frozenset()
) -> Plan:
    return plan(chosen, holds or Holds(), policy, lambda event: event.id in accepted)


def ids(events: dict[str, list[Event]]) -> dict[str, list[str]]:
    return {key: [event.id for event in its] for key, its in events.items()}


def reasons(items: list[Rejected]) -> list[tuple[str, str]]:
    return [(item.document["id"], str(item.reason)) for item in items]


def publish(planned: Plan, refused: str | None = None, *, stop: bool) -> list[KeyOutcome]:
    """What a publisher does, with one event refused."""
    outcomes = []
    for key, events in planned.to_publish.items():
        outcome = KeyOutcome(key)
        for number, event in enumerate(events):
            if event.id == refused:
                outcome.rejected.append(Rejected.of(event, Reason.MESSAGE_REFUSED, "no", "amqp:not-allowed"))
                if stop:
                    outcome.held_back = events[number + 1 :]
                    break
            else:
                outcome.published += 1
        outcomes.append(outcome)
    return outcomes


def outcome_of(chosen: Received, outcomes: list[KeyOutcome], rejected: list[Rejected]) -> Outcome:
    return Outcome.of(chosen, outcomes, rejected)


FEED = (document("e1"), document("e2", **MALFORMED), document("e3"), document("o1", "other"))


def test_skip_publishes_what_follows() -> None:
    chosen = selection(*FEED)
    planned = made(chosen, SKIP)
    outcomes = publish(planned, "o1", stop=False)

    rejected = conclude(planned, outcomes, SKIP)

    assert ids(planned.to_publish) == {"k": ["e1", "e3"], "other": ["o1"]}
    assert reasons(rejected) == [("e2", "data-not-object"), ("o1", "message-refused")]
    assert outcome_of(chosen, outcomes, rejected).published == 2


def test_park_quarantines_what_follows_in_its_order() -> None:
    chosen = selection(*FEED, document("o2", "other"), document("o3", "other"))
    planned = made(chosen, PARK)
    outcomes = publish(planned, "o2", stop=True)

    rejected = conclude(planned, outcomes, PARK)

    assert ids(planned.to_publish) == {"k": ["e1"], "other": ["o1", "o2", "o3"]}
    assert reasons(rejected) == [
        ("e2", "data-not-object"),
        ("e3", "key-parked"),
        ("o2", "message-refused"),
        ("o3", "key-parked"),
    ]
    assert outcome_of(chosen, outcomes, rejected).published == 2


def test_an_event_of_a_parked_key_is_parked_unless_the_topic_has_it_already() -> None:
    chosen = selection(document("e1"), document("e2"), document("o1", "other"))
    planned = made(chosen, PARK, Holds(parked=frozenset({"k"})), accepted=frozenset({"e1"}))

    assert ids(planned.to_publish) == {"k": ["e1"], "other": ["o1"]}
    assert reasons(conclude(planned, [], PARK)) == [("e2", "key-parked")]


def test_block_stops_the_key_and_says_how_to_go_on() -> None:
    chosen = selection(*FEED)
    planned = made(chosen, BLOCK)
    outcomes = publish(planned, stop=True)

    rejected = conclude(planned, outcomes, BLOCK)

    assert rejected == []
    outcome = outcome_of(chosen, outcomes, rejected)
    (failed,) = outcome.failed
    assert (failed.partition_key, failed.unsent, failed.blocked_by) == ("k", 2, "e2")
    assert isinstance(failed.error, BlockedError)
    assert "quarantine add" in str(failed.error)
    assert outcome.blocking == [failed]


def test_block_stops_the_key_of_an_event_that_is_refused() -> None:
    chosen = selection(document("e1"), document("e2"), document("e3"))
    planned = made(chosen, BLOCK)
    outcomes = publish(planned, "e2", stop=True)

    assert conclude(planned, outcomes, BLOCK) == []
    (failed,) = outcome_of(chosen, outcomes, []).failed
    assert (failed.published, failed.unsent, failed.blocked_by) == (1, 2, "e2")


def test_block_stops_a_key_of_which_nothing_was_to_be_sent() -> None:
    chosen = selection(document("e1", **MALFORMED), document("e2"))
    planned = made(chosen, BLOCK)
    outcomes = publish(planned, stop=True)

    assert conclude(planned, outcomes, BLOCK) == []
    (failed,) = outcome_of(chosen, outcomes, []).failed
    assert (failed.unsent, failed.blocked_by) == (2, "e1")


@pytest.mark.parametrize("policy", [SKIP, PARK, BLOCK])
def test_what_has_no_key_to_be_ordered_by_is_quarantined_and_holds_up_nothing(policy: OnPoison) -> None:
    chosen = selection(document("e1", partitionKey=7), document("e2"))
    planned = made(chosen, policy)
    outcomes = publish(planned, stop=policy is not SKIP)

    assert reasons(conclude(planned, outcomes, policy)) == [("e1", "partition-key-not-string")]
    assert ids(planned.to_publish) == {"k": ["e2"]}


@pytest.mark.parametrize(
    ("policy", "sent", "behind"), [(SKIP, ["e2"], []), (BLOCK, ["e2"], []), (PARK, [], ["e2"])]
)
def test_an_operators_order_quarantines_the_event(policy: OnPoison, sent: list[str], behind: list[str]) -> None:
    chosen = selection(document("e1"), document("e2"))
    planned = made(chosen, policy, Holds(set_aside=frozenset({("k", "e1")})))
    outcomes = publish(planned, stop=policy is not SKIP)

    rejected = conclude(planned, outcomes, policy)

    assert ids(planned.to_publish).get("k", []) == sent
    assert reasons(rejected) == [("e1", "set-aside"), *((each, "key-parked") for each in behind)]
    outcome_of(chosen, outcomes, rejected)


def test_an_order_that_comes_after_the_event_was_accepted_changes_nothing() -> None:
    planned = made(selection(document("e1")), SKIP, Holds(set_aside=frozenset({("k", "e1")})), frozenset({"e1"}))

    assert (ids(planned.to_publish), planned.rejected) == ({"k": ["e1"]}, [])


def test_an_outcome_that_does_not_add_up_raises_instead_of_losing_events() -> None:
    chosen = selection(document("e1"), document("e2"))

    with pytest.raises(AccountingError, match=r"2 document\(s\) came, and 0 are accounted for"):
        outcome_of(chosen, [], [])


def test_events_unsent_without_an_error_are_no_success() -> None:
    with pytest.raises(AccountingError):
        outcome_of(selection(document("e1")), [KeyOutcome("k", unsent=1)], [])


def test_an_event_held_back_without_parking_is_no_success() -> None:
    chosen = selection(document("e1"))
    outcomes = [KeyOutcome("k", held_back=[chosen.events[0]])]

    with pytest.raises(AccountingError):
        outcome_of(chosen, outcomes, [])


def test_one_event_alone_is_named_only_where_others_go_through() -> None:
    stuck = KeyOutcome("k", unsent=1, error=BlockedError("no"), blocked_by="e1")
    through = KeyOutcome("other", published=1)

    chosen = selection(document("e1"), document("o1", "other"))
    assert outcome_of(chosen, [stuck, through], []).blocking == [stuck]
    assert outcome_of(selection(document("e1")), [stuck], []).blocking == []


def test_park_waits_for_what_is_still_to_be_sent_before_it_parks_the_key() -> None:
    chosen = selection(*FEED)
    planned = made(chosen, PARK)
    outcomes = [
        KeyOutcome("k", unsent=1, error=RetryableError("later")),
        KeyOutcome("other", published=1),
    ]

    rejected = conclude(planned, outcomes, PARK)

    assert rejected == []
    assert outcome_of(chosen, outcomes, rejected).unsent == 3


def test_skip_quarantines_a_malformed_event_of_a_key_that_fails() -> None:
    chosen = selection(*FEED)
    planned = made(chosen, SKIP)
    outcomes = [
        KeyOutcome("k", unsent=2, error=RetryableError("later")),
        KeyOutcome("other", published=1),
    ]

    assert reasons(conclude(planned, outcomes, SKIP)) == [("e2", "data-not-object")]


def test_block_names_the_first_of_several_refused_events() -> None:
    chosen = selection(document("e1"), document("e2"))
    planned = made(chosen, BLOCK)
    refusals = [Rejected.of(event, Reason.MESSAGE_REFUSED, "no", "amqp:not-allowed") for event in chosen.events]
    outcomes = [KeyOutcome("k", rejected=refusals)]

    assert conclude(planned, outcomes, BLOCK) == []
    (failed,) = outcome_of(chosen, outcomes, []).failed
    assert (failed.blocked_by, failed.unsent) == ("e1", 2)


def test_block_stops_every_key_with_a_malformed_document_also_behind_one_without_a_key() -> None:
    chosen = selection(
        document("e1", partitionKey=7), document("e2", **MALFORMED), document("o1", "other", **MALFORMED)
    )
    planned = made(chosen, BLOCK)
    outcomes: list[KeyOutcome] = []

    rejected = conclude(planned, outcomes, BLOCK)

    assert reasons(rejected) == [("e1", "partition-key-not-string")]
    failed = outcome_of(chosen, outcomes, rejected).failed
    assert [(each.partition_key, each.blocked_by) for each in failed] == [("k", "e2"), ("other", "o1")]


def test_what_is_blocked_counts_as_unsent_and_not_as_held_back_as_well() -> None:
    chosen = selection(document("e1"), document("e2"), document("e3"))
    planned = made(chosen, BLOCK)
    outcomes = publish(planned, "e1", stop=True)

    conclude(planned, outcomes, BLOCK)

    assert [(each.unsent, accounted_for(each)) for each in outcomes] == [(3, 3)]
