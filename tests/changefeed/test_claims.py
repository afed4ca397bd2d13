"""Claims on the shards of a named consumer: taken by one, and of no use to whoever has lost them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import (
    START,
    Claim,
    ClaimLostError,
    Consumer,
    ConsumerRoleError,
    CursorChangedError,
    DatabaseError,
    Session,
    SetupError,
    Stored,
)
from outbox_relay.changefeed.statements import Result, Statement
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.postgresql import PostgresBackend
from tests.support.watchdog import WATCHDOG_S

CLAIM = 'changefeed."claim:app.event"'
ONE, TWO, THREE = (bytes(15) + bytes([number]) for number in (1, 2, 3))


def consumer(backend: Backend, name: str = "relay") -> Consumer:
    return Consumer(backend.session(), TABLE, name)


def test_claims_begin_without_an_owner_at_the_start(backend: Backend) -> None:
    claims = consumer(backend).claims([2, 0, -1])

    assert claims == [Claim(shard, START, None, 0, 0, None) for shard in (2, 0, -1)]
    assert consumer(backend).claims([2, 0, -1]) == claims


def test_further_shards_are_added(backend: Backend) -> None:
    mine = consumer(backend)
    (first,) = mine.claims([0])
    mine.take(first, "me")

    first, second = mine.claims([0, 1])

    assert (first.owner, second.owner) == ("me", None)


def test_reading_the_claims_that_exist_makes_none(backend: Backend) -> None:
    mine = consumer(backend)
    assert mine.existing() == {}
    consumer(backend, "another").claims([0, 1])

    (claim,) = mine.claims([1])

    assert mine.existing() == {1: claim}


def test_no_shards_are_no_claims(backend: Backend) -> None:
    assert consumer(backend).claims([]) == []


def test_claims_are_made_by_several_processes_at_once(backend: Backend) -> None:
    consumers = [consumer(backend) for _ in range(4)]
    barrier = Barrier(4)

    def claims(one: Consumer) -> list[Claim]:
        barrier.wait(WATCHDOG_S)
        return one.claims(range(20))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(claims, consumers, timeout=WATCHDOG_S))

    assert found == [[Claim(shard, START, None, 0, 0, None) for shard in range(20)]] * 4


def test_one_of_many_takers_at_once_wins(backend: Backend) -> None:
    consumers = [consumer(backend) for _ in range(6)]
    (seen,) = consumers[0].claims([0])
    barrier = Barrier(6)

    def take(number: int) -> Claim | None:
        barrier.wait(WATCHDOG_S)
        try:
            return consumers[number].take(seen, f"owner {number}")
        except ClaimLostError:
            return None

    with ThreadPoolExecutor(6) as pool:
        [taken] = [claim for claim in pool.map(take, range(6), timeout=WATCHDOG_S) if claim]

    assert taken == Claim(0, START, taken.owner, 1, 1, None)
    assert consumers[0].claims([0]) == [taken]


def test_a_claim_that_was_renewed_since_it_was_seen_is_not_taken(backend: Backend) -> None:
    owner, watcher = consumer(backend), consumer(backend)
    mine = owner.take(owner.claims([0])[0], "owner")
    (seen,) = watcher.claims([0])
    owner.renew(mine)

    with pytest.raises(ClaimLostError, match="shard 0 of the consumer 'relay'"):
        watcher.take(seen, "watcher")

    (seen,) = watcher.claims([0])
    assert watcher.take(seen, "watcher").owner == "watcher"


@pytest.mark.parametrize("act", ["renew", "store"])
def test_what_the_owner_does_shows_that_it_is_alive(backend: Backend, act: str) -> None:
    mine = consumer(backend)
    claim = mine.take(mine.claims([0])[0], "me")
    acts: dict[str, Callable[[], None]] = {
        "renew": lambda: mine.renew(claim),
        "store": lambda: mine.store(claim, ONE),
    }

    versions = {claim.version}
    for _ in range(3):
        acts[act]()
        versions.add(mine.claims([0])[0].version)

    assert len(versions) == 4


def test_a_stored_cursor_is_kept_by_the_next_owner(backend: Backend) -> None:
    first, second = consumer(backend), consumer(backend)
    claim = first.take(first.claims([0])[0], "first")
    first.store(claim, ONE)
    first.store(claim, TWO)
    first.renew(claim)

    taken = second.take(second.claims([0])[0], "second")

    assert taken.cursor == TWO
    second.renew(taken)
    assert second.claims([0])[0].cursor == TWO
    ((stored_at,),) = backend.rows("select stored_at from changefeed.\"claim:app.event\" where consumer = 'relay'")
    assert stored_at is not None


def test_an_owner_that_has_lost_its_claim_changes_nothing(backend: Backend) -> None:
    first, second = consumer(backend), consumer(backend)
    stale = first.take(first.claims([0])[0], "first")
    first.store(stale, ONE)
    taken = second.take(second.claims([0])[0], "second")
    second.store(taken, TWO)
    before = second.claims([0])

    for refused in (
        lambda: first.store(stale, THREE),
        lambda: first.renew(stale),
        lambda: first.release(stale),
        lambda: first.release(stale, "third"),
        lambda: first.ask(stale, "first"),
        lambda: first.take(stale, "first"),
    ):
        with pytest.raises(ClaimLostError):
            refused()

    assert second.claims([0]) == before
    assert before[0].cursor == TWO


def test_the_same_process_that_takes_a_claim_again_has_another_epoch(backend: Backend) -> None:
    mine = consumer(backend)
    first = mine.take(mine.claims([0])[0], "me")
    second = mine.take(mine.claims([0])[0], "me")

    with pytest.raises(ClaimLostError):
        mine.store(first, ONE)
    mine.store(second, TWO)

    assert second.epoch == first.epoch + 1
    assert mine.claims([0])[0].cursor == TWO


def test_a_released_claim_has_no_owner_and_keeps_its_cursor(backend: Backend) -> None:
    mine = consumer(backend)
    claim = mine.take(mine.claims([0])[0], "me")
    mine.store(claim, ONE)

    mine.release(claim)

    (released,) = mine.claims([0])
    assert (released.owner, released.cursor, released.epoch) == (None, ONE, claim.epoch + 1)
    with pytest.raises(ClaimLostError):
        mine.store(claim, TWO)


def test_a_claim_is_asked_for_and_handed_over(backend: Backend) -> None:
    first, second = consumer(backend), consumer(backend)
    mine = first.take(first.claims([0])[0], "first")
    (seen,) = second.claims([0])

    second.ask(seen, "second")
    assert first.claims([0])[0].wanted_by == "second"
    first.store(mine, ONE)
    first.release(mine, "second")

    (given,) = second.claims([0])
    assert (given.owner, given.wanted_by, given.epoch) == ("second", None, mine.epoch + 1)
    second.store(given, TWO)
    with pytest.raises(ClaimLostError):
        first.store(mine, THREE)


def test_a_request_is_declined_by_the_owner(backend: Backend) -> None:
    first, second = consumer(backend), consumer(backend)
    mine = first.take(first.claims([0])[0], "first")
    second.ask(second.claims([0])[0], "second")

    first.decline(mine)

    (kept,) = second.claims([0])
    assert (kept.owner, kept.wanted_by, kept.epoch) == ("first", None, mine.epoch)
    first.release(mine)
    with pytest.raises(ClaimLostError):
        first.decline(mine)


def test_a_request_is_no_sign_of_life(backend: Backend) -> None:
    mine = consumer(backend)
    claim = mine.take(mine.claims([0])[0], "me")

    consumer(backend).ask(claim, "other")

    assert mine.claims([0])[0].version == claim.version


def test_consumers_and_shards_have_claims_of_their_own(backend: Backend) -> None:
    one, other = consumer(backend, "one"), consumer(backend, "öther 'x'")
    first, second = one.claims([0, 1])
    one.store(one.take(first, "me"), ONE)
    other.store(other.take(other.claims([0])[0], "you"), TWO)

    assert [(claim.owner, claim.cursor) for claim in one.claims([0, 1])] == [("me", ONE), (None, START)]
    assert [(claim.owner, claim.cursor) for claim in other.claims([0])] == [("you", TWO)]
    assert second.owner is None


def test_claims_end_with_their_feed(backend: Backend) -> None:
    mine = consumer(backend)
    mine.store(mine.take(mine.claims([0])[0], "me"), ONE)
    changefeed.drop_feed(backend.owner, TABLE)

    with pytest.raises(SetupError, match="setup-feed"):
        mine.claims([0])

    changefeed.setup_feed(backend.owner, TABLE)
    assert mine.claims([0]) == [Claim(0, START, None, 0, 0, None)]


def test_what_hinders_a_claim_is_said(postgresql: PostgresBackend) -> None:
    """A user who may see claims, and not make any."""
    postgresql.execute(
        "create role looker login; grant usage on schema changefeed to looker;"
        'grant select on changefeed."claim:app.event" to looker'
    )

    with pytest.raises(DatabaseError, match="permission denied"):
        Consumer(postgresql.session(user="looker"), TABLE, "relay").claims([0])


def test_a_lost_connection_is_said(backend: Backend) -> None:
    session = backend.session()
    mine = Consumer(session, TABLE, "relay")
    claim = mine.take(mine.claims([0])[0], "me")
    backend.kill(backend.id_of(session))

    with pytest.raises(DatabaseError) as failed:
        mine.store(claim, ONE)

    assert failed.value.lost
    with pytest.raises(DatabaseError) as again:
        mine.claims([5])
    assert again.value.lost


def test_a_cursor_that_somebody_else_has_changed_is_not_replaced(backend: Backend) -> None:
    mine = consumer(backend)
    claim = mine.take(mine.claims([0])[0], "me")
    mine.store(claim, ONE)
    consumer(backend).store(Claim(0, ONE, "me", claim.epoch, 0, None), THREE)

    with pytest.raises(
        CursorChangedError, match=r"shard 0 of the consumer 'relay' is 0+3 .* stored 0+1 last"
    ) as raised:
        mine.store(claim, TWO)

    assert (raised.value.expected, raised.value.found) == (ONE, THREE)
    assert mine.claims([0])[0].cursor == THREE


def test_a_cursor_is_known_to_the_session_that_replaces_another(backend: Backend) -> None:
    stored = Stored()
    first = Consumer(backend.session(), TABLE, "relay", stored)
    claim = first.take(first.claims([0])[0], "me")
    first.store(claim, ONE)

    Consumer(backend.session(), TABLE, "relay", stored).store(claim, TWO)

    assert first.claims([0])[0].cursor == TWO


class Deaf:
    """A session whose answers to stores are lost, or whose stores are."""

    def __init__(self, session: Session, *, arrives: bool) -> None:
        self._session = session
        self._arrives = arrives
        self.lost = 0
        self.dialect = session.dialect

    def execute(self, statement: Statement, /) -> Result:
        if "last_ulid = ?" in statement.sql and not self.lost:
            self.lost += 1
            if self._arrives:
                self._session.execute(statement)
            raise DatabaseError("the connection is lost", lost=True)
        return self._session.execute(statement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("arrives", [True, False])
def test_after_a_lost_answer_either_cursor_is_right(backend: Backend, arrives: bool) -> None:
    stored = Stored()
    deaf = Consumer(Deaf(backend.session(), arrives=arrives), TABLE, "relay", stored)
    claim = deaf.take(deaf.claims([0])[0], "me")
    with pytest.raises(DatabaseError):
        deaf.store(claim, ONE)

    deaf.store(claim, TWO)

    assert deaf.claims([0])[0].cursor == TWO


def test_a_consumer_belongs_to_the_role_that_made_it(postgresql: PostgresBackend) -> None:
    readers = '"changefeed.readers:app.event"'
    postgresql.execute(
        f"create role relay login; create role other login; create role relays; "
        f"create role replica login; grant relays to replica; grant {readers} to relay, other, replica"
    )
    sessions = {name: postgresql.session(user=name) for name in ("relay", "other", "replica")}
    mine = Consumer(sessions["relay"], TABLE, "relay")
    claim = mine.take(mine.claims([0])[0], "me")
    other = Consumer(sessions["other"], TABLE, "relay")

    for act in (
        lambda: other.store(claim, THREE),
        lambda: other.take(other.claims([0])[0], "other"),
        lambda: other.release(claim),
        lambda: other.claims([0, 1]),
        lambda: sessions["other"].execute(Statement(f"update {CLAIM} set role_name = 'other'")),
        lambda: sessions["other"].execute(Statement(f"update {CLAIM} set consumer = 'x', shard_id = 7")),
    ):
        with pytest.raises(
            ConsumerRoleError, match=r"the consumer (relay|x) belongs to the role relay, and not to other"
        ):
            act()
    mine.store(claim, ONE)

    assert postgresql.rows(f"select role_name, last_ulid from {CLAIM}") == [("relay", ONE)]
    assert Consumer(sessions["other"], TABLE, "its own").claims([0])[0].owner is None
    postgresql.execute(f"update {CLAIM} set role_name = 'relays' where consumer = 'relay'")
    Consumer(sessions["replica"], TABLE, "relay").store(Claim(0, ONE, "me", claim.epoch, 0, None), TWO)
    with pytest.raises(ConsumerRoleError):
        mine.renew(claim)


def test_a_claim_from_before_belongs_to_the_first_role_that_changes_it(postgresql: PostgresBackend) -> None:
    postgresql.execute('create role relay login; grant "changefeed.readers:app.event" to relay')
    postgresql.execute(f"insert into {CLAIM} (consumer, shard_id) values ('relay', 0)")
    postgresql.execute(
        f"alter table {CLAIM} disable trigger check_claim; update {CLAIM} set role_name = null; "
        f"alter table {CLAIM} enable trigger check_claim"
    )
    mine = Consumer(postgresql.session(user="relay"), TABLE, "relay")

    mine.take(mine.claims([0])[0], "me")

    assert postgresql.rows(f"select role_name from {CLAIM}") == [("relay",)]
