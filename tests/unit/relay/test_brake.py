"""Many partition keys refused alike are not poison; one among others is."""

from __future__ import annotations

from relay.brake import Brake
from relay.errors import RefusedAlikeError
from relay.events import Event, Reason, Rejected
from relay.results import KeyOutcome
from tests.support.outcomes import accounted_for

ALIKE = "amqp:not-allowed"


def event(key: str, identifier: str = "e1") -> Event:
    return Event(identifier, key, "domainEvent", "A", {}, {"id": identifier})


def refused(key: str, condition: str | None = ALIKE, **parts: int) -> KeyOutcome:
    rejected = Rejected.of(event(key), Reason.MESSAGE_REFUSED, "no", condition)
    return KeyOutcome(key, rejected=[rejected], **parts)  # type: ignore[arg-type]


def accepted(key: str) -> KeyOutcome:
    return KeyOutcome(key, published=1, sends=1)


def quarantined(outcomes: list[KeyOutcome]) -> list[str]:
    return [each.partition_key for each in outcomes if each.rejected]


def test_keys_refused_alike_while_nothing_gets_through_are_failures_and_nothing_is_quarantined() -> None:
    outcomes = [refused(f"k{number}", held_back=[event("k", "e2")]) for number in range(3)]  # type: ignore[arg-type]

    Brake().judge(outcomes)

    assert quarantined(outcomes) == []
    assert [(each.unsent, accounted_for(each), type(each.error)) for each in outcomes] == [
        (2, 2, RefusedAlikeError)
    ] * 3
    assert "amqp:not-allowed" in str(outcomes[0].error)
    assert "quarantine add" in str(outcomes[0].error)


def test_refusals_among_as_many_keys_that_get_through_are_poison() -> None:
    outcomes = [*(refused(f"k{number}") for number in range(3)), *(accepted(f"a{number}") for number in range(3))]

    Brake().judge(outcomes)

    assert quarantined(outcomes) == ["k0", "k1", "k2"]


def test_more_refusals_than_keys_that_get_through_are_withheld() -> None:
    outcomes = [*(refused(f"k{number}") for number in range(3)), accepted("a1"), accepted("a2")]

    Brake().judge(outcomes)

    assert quarantined(outcomes) == []


def test_two_keys_refused_alike_may_be_chance() -> None:
    outcomes = [refused("k1"), refused("k2")]

    Brake().judge(outcomes)

    assert quarantined(outcomes) == ["k1", "k2"]


def test_refusals_of_different_kinds_are_not_alike() -> None:
    outcomes = [refused("k1"), refused("k2"), refused("k3", "amqp:invalid-field")]

    Brake().judge(outcomes)

    assert quarantined(outcomes) == ["k1", "k2", "k3"]


def test_what_the_relay_found_by_itself_is_poison_however_often() -> None:
    outcomes = [refused(f"k{number}", None) for number in range(10)]

    Brake().judge(outcomes)

    assert len(quarantined(outcomes)) == 10


def test_invocations_with_one_key_each_are_seen_together() -> None:
    brake = Brake()
    found = []
    for number in range(6):
        outcomes = [refused(f"k{number}")]
        brake.judge(outcomes)
        found += quarantined(outcomes)

    assert found == ["k0", "k1"]


def test_the_same_key_again_is_no_further_one() -> None:
    brake = Brake()
    for _ in range(5):
        outcomes = [refused("k1")]
        brake.judge(outcomes)
        assert quarantined(outcomes) == ["k1"]


def test_what_gets_through_again_releases_the_brake() -> None:
    brake = Brake()
    brake.judge([refused("k1")])
    brake.judge([refused("k2")])
    brake.judge([accepted("a1")])
    outcomes = [refused("k3")]

    brake.judge(outcomes)

    assert quarantined(outcomes) == ["k3"]


def test_an_attempt_that_sent_nothing_changes_nothing() -> None:
    brake = Brake()
    brake.judge([refused("k1")])
    brake.judge([refused("k2")])
    brake.judge([KeyOutcome("k9", already_published=5)])
    outcomes = [refused("k3")]

    brake.judge(outcomes)

    assert quarantined(outcomes) == []


def test_an_event_whose_key_got_through_behind_it_stays_rejected() -> None:
    through = refused("k0", published=1, accepted_after_rejection=True)
    outcomes = [through, *(refused(f"k{number}") for number in range(1, 4))]

    Brake().judge(outcomes)

    assert quarantined(outcomes) == ["k0"]


def test_the_event_of_a_key_is_named_where_it_is_the_only_one_refused() -> None:
    several = refused("k2")
    several.rejected += [
        Rejected.of(event("k2", f"e{number}"), Reason.MESSAGE_REFUSED, "later", ALIKE) for number in (2, 3)
    ]
    outcomes = [refused("k1"), several, refused("k3")]

    Brake().judge(outcomes)

    assert [each.blocked_by for each in outcomes] == ["e1", None, "e1"]
    assert "Service Bus said: no " in str(several.error)


def test_refusals_by_the_links_own_limit_alone_do_not_forget_nor_withhold_anything() -> None:
    brake = Brake()
    brake.judge([refused("k1"), refused("k2")])

    brake.judge([refused("large", None)])
    brake.judge([])
    outcomes = [refused("k3")]
    brake.judge(outcomes)

    assert quarantined(outcomes) == []


def test_one_key_that_gets_through_forgets_refusals_when_nothing_is_refused() -> None:
    brake = Brake()
    brake.judge([refused("k1"), refused("k2")])

    brake.judge([accepted("a")])
    outcomes = [refused("k3")]
    brake.judge(outcomes)

    assert quarantined(outcomes) == ["k3"]
