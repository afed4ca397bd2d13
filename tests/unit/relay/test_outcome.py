"""The sums of an invocation's outcome, and its description of the keys that did not go through."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relay.core.documents import SourceDocument
from relay.core.errors import (
    AccountingError,
    BlockedError,
    DoubtfulRefusalError,
    RefusedAlikeError,
    RetryableError,
    SendError,
)
from relay.core.events import Event, Reason, Rejected
from relay.core.remedy import set_aside
from relay.core.results import KeyFailure, KeyOutcome, Outcome, by_reason

EVENT = Event("e", "k", "domainEvent", "A", {}, SourceDocument.plain({}))


def outcome(
    *parts: KeyOutcome | KeyFailure,
    documents: int,
    ignored: int = 0,
    set_aside: Sequence[Rejected] = (),
    already_published: int = 0,
    superseded: int = 0,
) -> Outcome:
    failures = [part for part in parts if isinstance(part, KeyFailure)]
    keys = [part for part in parts if isinstance(part, KeyOutcome)]
    return Outcome(
        documents=documents,
        ignored=ignored,
        published=sum(key.published for key in keys),
        already_published=already_published,
        superseded=superseded,
        quarantined=by_reason(set_aside),
        unsent=sum(failure.unsent for failure in failures),
        partition_keys=len(keys),
        sends=0,
        failed=failures,
        set_aside=set_aside,
    )


def failed(number: int, *, blocked_by: str | None = None, error: SendError | None = None) -> KeyFailure:
    return KeyFailure(f"key {number}", 2, error or RetryableError(f"no {number}"), blocked_by)


def test_every_document_is_counted_once_whatever_became_of_it() -> None:
    made = outcome(
        KeyOutcome("k", published=1),
        KeyFailure("l", 16, BlockedError("no")),
        documents=1 + 2 + 4 + 8 + 16 + 32,
        ignored=8,
        set_aside=[Rejected.of(EVENT, Reason.ID_EMPTY, "no")] * 32,
        already_published=2,
        superseded=4,
    )

    assert (made.published, made.already_published, made.superseded, made.unsent, made.ignored) == (1, 2, 4, 16, 8)
    assert made.quarantined == {"id-empty": 32}
    assert [each.partition_key for each in made.failed] == ["l"]


def test_an_error_without_an_unsent_event_does_not_add_up() -> None:
    with pytest.raises(AccountingError):
        outcome(KeyOutcome("k", published=1), KeyFailure("k", 0, BlockedError("no")), documents=1)


def test_the_explanation_names_ten_keys_and_counts_the_others() -> None:
    ten, twelve = (outcome(*map(failed, range(count)), documents=2 * count).explain() for count in (10, 12))

    assert ten.splitlines()[1:] == [f"  'key {number}': 2 event(s): no {number}" for number in range(10)]
    assert twelve.splitlines()[1:] == [*ten.splitlines()[1:], "  and 2 more partition key(s)"]


def test_the_explanation_counts_what_went_through_now_and_before() -> None:
    said = outcome(KeyOutcome("k", published=3), failed(0), documents=7, already_published=2).explain()

    assert said.startswith("2 event(s) of 1 partition key(s) were not accepted by Service Bus; 5 event(s)")


def test_an_event_that_alone_holds_up_its_key_is_named_with_the_command_that_sets_it_aside() -> None:
    said = outcome(failed(0, blocked_by="it's"), failed(1), documents=5, already_published=1).explain()

    (line,) = [line for line in said.splitlines() if "alone holds up" in line]
    assert line.endswith("python -m relay quarantine add 'key 0' percent:it%27s")


def test_an_event_that_is_the_only_one_to_fail_is_named_though_nothing_else_is_accepted() -> None:
    said = outcome(failed(0, blocked_by="e"), documents=2).explain()

    (line,) = [line for line in said.splitlines() if "quarantine add" in line]
    assert "check first that the topic accepts other events" in line
    assert line.endswith("python -m relay quarantine add 'key 0' e")


def test_an_event_that_is_refused_like_others_is_named_with_what_to_check_first() -> None:
    alike = failed(0, blocked_by="e", error=RefusedAlikeError("no"))
    said = outcome(alike, documents=3, already_published=1).explain()

    (line,) = [line for line in said.splitlines() if "quarantine add" in line]
    assert "check first what has changed at the topic" in line


def test_where_nothing_is_accepted_an_error_that_may_pass_names_none_of_several() -> None:
    refused = DoubtfulRefusalError("no")
    stuck = [failed(0, blocked_by="a"), failed(1, blocked_by="b", error=refused), failed(2)]

    assert outcome(*stuck, documents=6).blocking == [stuck[1]]
    assert outcome(*stuck, KeyOutcome("k", published=1), documents=7).blocking == stuck[:2]
    assert outcome(*stuck, documents=7, already_published=1).blocking == stuck[:2]


def test_a_key_or_an_id_that_begins_with_a_dash_is_no_option_of_the_command() -> None:
    assert str(set_aside("-k", "e")) == "python -m relay quarantine add percent:-k e"
    assert str(set_aside("k", "--e")) == "python -m relay quarantine add k percent:--e"


def test_what_does_not_add_up_is_reported_without_a_document() -> None:
    secret = Rejected(SourceDocument.plain({"id": "e", "data": {"name": "a person"}}), Reason.ID_EMPTY, "no")

    with pytest.raises(AccountingError) as raised:
        outcome(documents=3, set_aside=[secret])
    said = str(raised.value)
    assert said.startswith(
        "3 document(s) came, and 1 are accounted for, 0 of them unsent for 0 error(s): Outcome(ign"
    )
    assert "a person" not in said


def test_a_key_that_had_no_turn_yet_has_no_events() -> None:
    outcome_of_key = KeyOutcome("k")

    assert (outcome_of_key.published, outcome_of_key.sends, outcome_of_key.error) == (0, 0, None)


def test_what_the_checkpoint_has_passed_is_not_set_aside() -> None:
    items = [Rejected(SourceDocument.plain({}), Reason.ID_EMPTY, "no", position) for position in range(3)]

    left = outcome(documents=8, set_aside=items, superseded=5).without(frozenset({0, 2}))

    assert (left.set_aside, left.superseded, left.quarantined) == ([items[1]], 7, {"id-empty": 1})
