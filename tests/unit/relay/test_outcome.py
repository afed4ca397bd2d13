"""What an invocation's outcome adds up to, and what it says of the keys that did not go through."""

from __future__ import annotations

import pytest

from relay.errors import AccountingError, BlockedError, RetryableError
from relay.events import Event, Reason, Received, Rejected
from relay.results import KeyOutcome, Outcome

EVENT = Event("e", "k", "domainEvent", "A", {}, {})


def outcome(*published: KeyOutcome, documents: int, ignored: int = 0, quarantined: int = 0) -> Outcome:
    rejected = [Rejected.of(EVENT, Reason.ID_EMPTY, "no")] * quarantined
    received = Received([EVENT] * (documents - ignored), ignored=ignored)
    return Outcome.of(received, published, rejected)


def failed(number: int, *, blocked_by: str | None = None) -> KeyOutcome:
    return KeyOutcome(f"key {number}", unsent=2, error=RetryableError(f"no {number}"), blocked_by=blocked_by)


def test_every_document_is_counted_once_whatever_became_of_it() -> None:
    made = outcome(
        KeyOutcome("k", published=1, already_published=2, superseded=4, sends=3),
        KeyOutcome("l", unsent=16, error=BlockedError("no"), sends=1),
        documents=1 + 2 + 4 + 8 + 16 + 32,
        ignored=8,
        quarantined=32,
    )

    assert (made.published, made.already_published, made.superseded, made.unsent, made.ignored) == (1, 2, 4, 16, 8)
    assert made.quarantined == {"id-empty": 32}
    assert (made.partition_keys, made.sends, [each.partition_key for each in made.failed]) == (2, 4, ["l"])


def test_an_error_without_an_unsent_event_does_not_add_up() -> None:
    with pytest.raises(AccountingError):
        outcome(KeyOutcome("k", published=1, error=BlockedError("no")), documents=1)


def test_the_explanation_names_ten_keys_and_counts_the_others() -> None:
    ten, twelve = (outcome(*map(failed, range(count)), documents=2 * count).explain() for count in (10, 12))

    assert ten.splitlines()[1:] == [f"  'key {number}': 2 event(s): no {number}" for number in range(10)]
    assert twelve.splitlines()[1:] == [*ten.splitlines()[1:], "  and 2 more partition key(s)"]


def test_the_explanation_counts_what_went_through_now_and_before() -> None:
    said = outcome(KeyOutcome("k", published=3, already_published=2), failed(0), documents=7).explain()

    assert said.startswith("2 event(s) of 1 partition key(s) were not accepted by Service Bus; 5 event(s)")


def test_an_event_that_alone_holds_up_its_key_is_named_with_the_command_that_sets_it_aside() -> None:
    through = KeyOutcome("k", already_published=1)
    said = outcome(through, failed(0, blocked_by="it's"), failed(1), documents=5).explain()

    (line,) = [line for line in said.splitlines() if "alone holds up" in line]
    assert line.endswith("""python -m relay quarantine add 'key 0' 'it'"'"'s'""")


def test_events_are_named_while_as_many_went_through_before_as_do_now() -> None:
    stuck = failed(0, blocked_by="e")

    assert outcome(KeyOutcome("k", published=1, already_published=1), stuck, documents=4).blocking == [stuck]


def test_a_key_that_had_no_turn_yet_has_no_events() -> None:
    outcome_of_key = KeyOutcome("k")

    assert (outcome_of_key.published, outcome_of_key.sends, outcome_of_key.error) == (0, 0, None)
    assert outcome_of_key.accepted_after_rejection is False
