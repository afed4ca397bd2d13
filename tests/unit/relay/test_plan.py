"""Events after a poisoned one: published, parked or blocked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.backends.cosmos.source import select
from relay.config.settings import OnPoison
from relay.core.errors import AccountingError, BlockedError, RetryableError
from relay.core.events import Event, Reason, Received, Rejected
from relay.core.holds import Holds, Order
from relay.core.place import Place
from relay.core.plan import Plan, combine, plan
from relay.core.results import KeyFailure, KeyOutcome, Outcome
from relay.routes.selection import BY_DEFAULT

SKIP, PARK, BLOCK = OnPoison.SKIP, OnPoison.PARK, OnPoison.BLOCK


def document(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": "A"}} | changes


def selection(*documents: dict[str, Any]) -> Received:
    return select(documents, BY_DEFAULT)


MALFORMED = {"data": "text"}


def made(
    chosen: Received,
    policy: OnPoison,
    holds: Holds | None = None,
    accepted: frozenset[str] = frozenset(),
    passed: frozenset[int] = frozenset(),
) -> Plan:
    return plan(chosen, policy, holds or Holds(), passed, lambda event: event.id in accepted)


def ids(events: dict[str, list[Event]]) -> dict[str, list[str]]:
    return {key: [event.id for event in its] for key, its in events.items()}


def reasons(items: Sequence[Rejected]) -> list[tuple[str, str]]:
    return [(item.document.fields["id"], str(item.reason)) for item in items]


def publish(planned: Plan, refused: str | None = None) -> list[KeyOutcome]:
    """A publisher's outcomes, with one event refused for good."""
    outcomes = []
    for key, events in planned.to_publish.items():
        outcome = KeyOutcome(key)
        for number, event in enumerate(events):
            if event.id == refused and planned.policy is BLOCK:
                outcome.error, outcome.blocked_by = BlockedError("quarantine add"), event.id
                outcome.unsent = len(events) - number
                break
            if event.id == refused:
                outcome.rejected.append(Rejected.of(event, Reason.MESSAGE_REFUSED, "no", "amqp:not-allowed"))
                if planned.policy is not SKIP:
                    outcome.held_back = events[number + 1 :]
                    break
            else:
                outcome.published += 1
        outcomes.append(outcome)
    return outcomes


def settled(
    chosen: Received, policy: OnPoison, holds: Holds | None = None, *, refused: str | None = None
) -> tuple[Plan, Outcome]:
    """The plan, and its outcome if one event is refused for good."""
    planned = made(chosen, policy, holds)
    return planned, combine(planned, chosen, publish(planned, refused))


FEED = (document("e1"), document("e2", **MALFORMED), document("e3"), document("o1", "other"))


def test_skip_publishes_what_follows() -> None:
    chosen = selection(*FEED)
    planned, outcome = settled(chosen, SKIP, refused="o1")

    assert ids(planned.to_publish) == {"k": ["e1", "e3"], "other": ["o1"]}
    assert reasons(outcome.set_aside) == [("e2", "data-not-object"), ("o1", "message-refused")]
    assert outcome.published == 2


def test_park_quarantines_what_follows_in_its_order() -> None:
    chosen = selection(*FEED, document("o2", "other"), document("o3", "other"))
    planned, outcome = settled(chosen, PARK, refused="o2")

    assert ids(planned.to_publish) == {"k": ["e1"], "other": ["o1", "o2", "o3"]}
    assert reasons(outcome.set_aside) == [
        ("e2", "data-not-object"),
        ("e3", "key-parked"),
        ("o2", "message-refused"),
        ("o3", "key-parked"),
    ]
    assert outcome.published == 2


def test_an_event_of_a_parked_key_is_parked_unless_the_topic_has_it_already() -> None:
    chosen = selection(document("e1"), document("e2"), document("o1", "other"))
    planned = made(chosen, PARK, Holds(parked={"k": None}), accepted=frozenset({"e1"}))

    assert ids(planned.to_publish) == {"other": ["o1"]}
    assert planned.accepted == 1
    outcome = combine(planned, chosen, [KeyOutcome("other", published=1)])
    assert reasons(outcome.set_aside) == [("e2", "key-parked")]


def test_block_stops_the_key_and_says_how_to_go_on() -> None:
    chosen = selection(*FEED)
    _, outcome = settled(chosen, BLOCK)

    assert outcome.set_aside == []
    (failed,) = outcome.failed
    assert (failed.partition_key, failed.unsent, failed.blocked_by) == ("k", 2, "e2")
    assert isinstance(failed.error, BlockedError)
    assert "quarantine add" in str(failed.error)
    assert outcome.blocking == [failed]


def test_block_stops_the_key_of_an_event_that_is_refused() -> None:
    chosen = selection(document("e1"), document("e2"), document("e3"))
    _, outcome = settled(chosen, BLOCK, refused="e2")

    assert outcome.set_aside == []
    (failed,) = outcome.failed
    assert (failed.unsent, failed.blocked_by) == (2, "e2")


def test_block_stops_a_key_of_which_nothing_was_to_be_sent() -> None:
    chosen = selection(document("e1", **MALFORMED), document("e2"))
    _, outcome = settled(chosen, BLOCK)

    assert outcome.set_aside == []
    (failed,) = outcome.failed
    assert (failed.unsent, failed.blocked_by) == (2, "e1")


@pytest.mark.parametrize("policy", [SKIP, PARK, BLOCK])
def test_what_has_no_key_to_be_ordered_by_is_quarantined_and_holds_up_nothing(policy: OnPoison) -> None:
    chosen = selection(document("e1", partitionKey=7), document("e2"))
    planned, outcome = settled(chosen, policy)

    assert reasons(outcome.set_aside) == [("e1", "partition-key-not-string")]
    assert ids(planned.to_publish) == {"k": ["e2"]}


def test_what_has_no_key_hides_nothing_that_is_set_aside_behind_it() -> None:
    chosen = selection(document("e1", key=""), document("e2", **MALFORMED), document("e3", "other", **MALFORMED))
    _, outcome = settled(chosen, SKIP)

    assert [item.position for item in outcome.set_aside] == [0, 1, 2]


@pytest.mark.parametrize(
    ("policy", "sent", "behind"), [(SKIP, ["e2"], []), (BLOCK, ["e2"], []), (PARK, [], ["e2"])]
)
def test_an_operators_order_quarantines_the_event(policy: OnPoison, sent: list[str], behind: list[str]) -> None:
    chosen = selection(document("e1"), document("e2"))
    planned, outcome = settled(chosen, policy, Holds(orders={("k", "e1"): (Order(),)}))

    assert ids(planned.to_publish).get("k", []) == sent
    assert reasons(outcome.set_aside) == [("e1", "set-aside"), *((each, "key-parked") for each in behind)]


def test_an_order_that_comes_after_the_event_was_accepted_changes_nothing() -> None:
    planned = made(selection(document("e1")), SKIP, Holds(orders={("k", "e1"): (Order(),)}), frozenset({"e1"}))

    assert (ids(planned.to_publish), planned.set_aside, planned.accepted) == ({}, {}, 1)


def test_an_outcome_that_does_not_add_up_raises_instead_of_losing_events() -> None:
    chosen = selection(document("e1"), document("e2"))

    with pytest.raises(AccountingError, match=r"2 document\(s\) came, and 0 are accounted for"):
        combine(Plan(SKIP), chosen, [])


def test_events_unsent_without_an_error_are_no_success() -> None:
    chosen = selection(document("e1"))

    with pytest.raises(AccountingError):
        combine(made(chosen, SKIP), chosen, [KeyOutcome("k", unsent=1)])


def test_an_event_held_back_without_parking_is_no_success() -> None:
    chosen = selection(document("e1"))
    outcomes = [KeyOutcome("k", held_back=[chosen.events[0]])]

    with pytest.raises(AccountingError):
        combine(made(chosen, SKIP), chosen, outcomes)


def test_park_waits_for_what_is_still_to_be_sent_before_it_parks_the_key() -> None:
    chosen = selection(*FEED)
    of_keys = [
        KeyOutcome("k", unsent=1, error=RetryableError("later")),
        KeyOutcome("other", published=1),
    ]

    outcome = combine(made(chosen, PARK), chosen, of_keys)

    assert outcome.set_aside == []
    assert outcome.unsent == 3


def test_skip_quarantines_a_malformed_event_of_a_key_that_fails() -> None:
    chosen = selection(*FEED)
    of_keys = [
        KeyOutcome("k", unsent=2, error=RetryableError("later")),
        KeyOutcome("other", published=1),
    ]

    outcome = combine(made(chosen, SKIP), chosen, of_keys)

    assert reasons(outcome.set_aside) == [("e2", "data-not-object")]


@pytest.mark.parametrize("policy", [SKIP, PARK, BLOCK])
def test_what_the_checkpoint_has_passed_is_neither_published_nor_set_aside_nor_blocks(policy: OnPoison) -> None:
    chosen = selection(document("e1"), document("e2", **MALFORMED), document("e3"))
    holds = Holds(parked={"k": None}, orders={("k", "e1"): (Order(),)})

    planned = made(chosen, policy, holds, passed=frozenset({0, 1, 2}))

    outcome = combine(planned, chosen, [])
    assert (outcome.superseded, outcome.unsent, outcome.quarantined.total()) == (3, 0, 0)


@pytest.mark.parametrize("policy", [SKIP, PARK, BLOCK])
@pytest.mark.parametrize("changes", [{}, MALFORMED], ids=["sound", "invalid"])
def test_what_an_earlier_attempt_has_set_aside_stays_so(policy: OnPoison, changes: dict[str, Any]) -> None:
    chosen = selection(document("e1", **changes, _lsn=7), document("e2", _lsn=8))
    holds = Holds(orders={("k", "e1"): (Order(True, Place(lsn=7)),)})

    planned = made(chosen, policy, holds)

    assert (planned.superseded, planned.set_aside) == (1, {})
    assert ids(planned.to_publish) == {"k": ["e2"]}


def test_another_version_of_an_event_that_was_set_aside_is_another_event() -> None:
    chosen = selection(document("e1", _lsn=9))

    planned = made(chosen, SKIP, Holds(orders={("k", "e1"): (Order(True, Place(lsn=7)),)}))

    assert ids(planned.to_publish) == {"k": ["e1"]}


def test_another_version_of_an_event_that_may_be_set_aside_is_another_event() -> None:
    chosen = selection(document("e1", _lsn=1), document("e1", _lsn=2))
    order = Order(place=Place(lsn=1), reason=Reason.MESSAGE_REFUSED, detail="no")

    planned = made(chosen, SKIP, Holds(orders={("k", "e1"): (order,)}))

    assert [(item.position, item.reason, item.detail) for item in planned.set_aside["k"]] == [
        (0, "message-refused", "no")
    ]
    assert [event.position for event in planned.to_publish["k"]] == [1]


def test_a_new_order_for_another_version_is_carried_out() -> None:
    chosen = selection(document("e1", _lsn=9))

    planned = made(chosen, SKIP, Holds(orders={("k", "e1"): (Order(True, Place(lsn=7)), Order())}))

    assert reasons(combine(planned, chosen, []).set_aside) == [("e1", "set-aside")]


def test_orders_for_several_events_of_a_blocked_key_are_carried_out_together() -> None:
    chosen = selection(document("e1", **MALFORMED), document("e2"), document("e3", **MALFORMED), document("e4"))
    holds = Holds(orders={("k", "e1"): (Order(),), ("k", "e3"): (Order(),)})
    _, outcome = settled(chosen, BLOCK, holds)

    assert reasons(outcome.set_aside) == [
        ("e1", "data-not-object"),
        ("e3", "data-not-object"),
    ]
    assert outcome.published == 2


def test_an_order_behind_an_event_that_blocks_is_carried_out_all_the_same() -> None:
    chosen = selection(document("e1", **MALFORMED), document("e2"), document("e3"))
    planned = made(chosen, BLOCK, Holds(orders={("k", "e2"): (Order(),)}))
    outcome = combine(planned, chosen, publish(planned))

    assert outcome.quarantined == {"set-aside": 1}
    assert (outcome.unsent, outcome.failed[0].blocked_by) == (2, "e1")


def test_what_lies_before_the_event_that_parked_a_key_is_published() -> None:
    chosen = selection(*(document(f"e{lsn}", _lsn=lsn) for lsn in (5, 6, 7, 8)))
    planned, outcome = settled(chosen, PARK, Holds(parked={"k": Place(lsn=7)}))

    assert ids(planned.to_publish) == {"k": ["e5", "e6"]}
    assert reasons(outcome.set_aside) == [("e7", "key-parked"), ("e8", "key-parked")]


def test_within_a_commit_the_order_of_the_event_that_parked_a_key_decides() -> None:
    chosen = selection(*(document(f"e{order}", _lsn=7, order=order) for order in (0, 1, 2)))

    planned = made(chosen, PARK, Holds(parked={"k": Place(lsn=7, order=1)}))

    assert ids(planned.to_publish) == {"k": ["e0"]}


def test_the_first_event_that_blocks_a_key_is_named() -> None:
    chosen = selection(document("e1", **MALFORMED), document("e2", **MALFORMED))
    planned = made(chosen, BLOCK)

    (failed,) = combine(planned, chosen, []).failed

    assert isinstance(failed, KeyFailure)
    assert (failed.unsent, failed.blocked_by) == (2, "e1")


def test_the_error_of_an_earlier_event_explains_a_key_that_is_blocked_too() -> None:
    chosen = selection(document("e1"), document("e2", **MALFORMED))
    later = [KeyOutcome("k", unsent=1, error=RetryableError("later"))]

    (failed,) = combine(made(chosen, BLOCK), chosen, later).failed

    assert (failed.unsent, str(failed.error), failed.blocked_by) == (2, "later", None)


def documents() -> st.SearchStrategy[list[dict[str, Any]]]:
    each = st.builds(document, st.sampled_from([f"e{number}" for number in range(12)]), st.sampled_from("abc"))
    return st.lists(each, max_size=12)


@given(documents(), st.sampled_from(OnPoison), st.sets(st.sampled_from("ab")))
def test_a_batch_that_nothing_holds_back_is_planned_like_any_other(
    given: list[dict[str, Any]], policy: OnPoison, keys: set[str]
) -> None:
    chosen = selection(*given)

    def accepted(event: Event) -> bool:
        return event.partition_key in keys

    quick = plan(chosen, policy, Holds(), frozenset(), accepted)
    slow = plan(chosen, policy, Holds(parked={"elsewhere": None}), frozenset(), accepted)

    assert quick == slow


@given(
    documents(),
    st.sampled_from(OnPoison),
    st.sets(st.sampled_from("ab")),
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 11)),
)
def test_every_document_of_a_batch_is_accounted_for_whatever_is_known_of_it(
    given: list[dict[str, Any]], policy: OnPoison, parked: set[str], passed: set[int], malformed: set[int]
) -> None:
    for number in malformed & set(range(len(given))):
        given[number]["data"] = "text"
    chosen = selection(*given)
    holds = Holds(dict.fromkeys(parked), {("a", "e1"): (Order(),), ("b", "e2"): (Order(True),)})

    planned = plan(chosen, policy, holds, passed, lambda event: event.id == "e3")

    outcome = combine(planned, chosen, publish(planned, "e4"))
    assert outcome.documents == chosen.documents
