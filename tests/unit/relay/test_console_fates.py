"""Every view of an event says what became of it: totals, recent events, timeline, page and `watch`."""

from __future__ import annotations

import asyncio
import json
import re
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.watching.changes import ENDED, Changes
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from outbox_relay.operator.console import formatting
from outbox_relay.operator.console.model import Arrival, Delivery, Stage, Tracked
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from outbox_relay.operator.console.status import headline
from outbox_relay.operator.console.stream import encoded
from outbox_relay.operator.outcomes import Outcome, Removal
from relay.quarantine.items import Filter
from tests.support.console_deployment import NOW, Deployment


class Fate(StrEnum):
    """The outcome of what the relay and an operator did with an event."""

    WAITING = "committed"
    PUBLISHED = "published"
    QUARANTINED = "quarantined"
    PARKED = "parked"
    DISCARDED = "discarded"
    PARKED_AND_DISCARDED = "discarded "
    RELEASED = "published "
    PARKED_AND_RELEASED = "published  "
    DISCARDED_ALTHOUGH_ACCEPTED = "published   "

    @property
    def stage(self) -> str:
        return self.value.strip()


_PARKED = {Fate.PARKED, Fate.PARKED_AND_DISCARDED, Fate.PARKED_AND_RELEASED}
_DISCARDED = {Fate.DISCARDED, Fate.PARKED_AND_DISCARDED, Fate.DISCARDED_ALTHOUGH_ACCEPTED}
_RELEASED = {Fate.RELEASED, Fate.PARKED_AND_RELEASED}
_ACCEPTED = {each for each in Fate if each.stage == "published"}
_IN_QUARANTINE = set(Fate) - {Fate.WAITING, Fate.PUBLISHED}


class World:
    """A relay whose events have these fates. The broker tells the console of each message, or of none."""

    def __init__(self, fates: list[Fate], *, tells: bool) -> None:
        self.deployment = Deployment()
        self.records = QuarantineAdmin(self.deployment.items)
        self.fates = {f"e{number}": fate for number, fate in enumerate(fates)}
        self.tells = tells
        self.accepted = 0

    def commit(self) -> None:
        # A position passes what is before it: those that wait come last.
        for name in sorted(self.fates, key=lambda name: self.fates[name] is Fate.WAITING):
            self.deployment.outbox.commit(name, committed_at=1_000_000.5)

    def relay(self) -> None:
        for name, fate in self.fates.items():
            if fate in _IN_QUARANTINE:
                self.deployment.quarantine(name, "key-parked" if fate in _PARKED else "message-too-large")
            elif fate is Fate.PUBLISHED:
                self.accept(name)
        passed = sum(fate is not Fate.WAITING for fate in self.fates.values())
        self.deployment.outbox.positions_at["0"] = (passed, 9)

    async def operate(self) -> None:
        for summary in await self.records.find(Filter()):
            assert summary.document_id is not None
            fate = self.fates[summary.document_id]
            if fate in _ACCEPTED:
                self.accept(summary.document_id)
            if fate in _DISCARDED:
                await self.records.remove(summary, removal=Removal(Outcome.DISCARDED, "jo", "a test order"))
            elif fate in _RELEASED:
                await self.records.remove(summary, removal=Removal(Outcome.RELEASED, "jo"))

    def accept(self, name: str) -> None:
        self.accepted += 1
        if self.tells:
            message = Delivery(name, "all", Arrival.WAITING, accepted_at=NOW)
            self.deployment.topic.arrivals.setdefault("k", []).append(message)


@given(st.lists(st.sampled_from(Fate), min_size=1, max_size=5), st.integers(0, 3), st.booleans())
def test_all_views_agree_with_the_broker(fates: list[Fate], looks: int, tells: bool) -> None:
    # Only the broker knows of an event that was accepted and whose record was discarded.
    known: list[Fate] = (
        fates if tells else [each for each in fates if each is not Fate.DISCARDED_ALTHOUGH_ACCEPTED]
    )
    asyncio.run(_views_agree(World(list(known), tells=tells), looks))


async def _views_agree(world: World, looks: int) -> None:
    """The console looks after some of the steps: bit 0 after the commits, bit 1 after the relay's work."""
    observer, changes = world.deployment.observer, Changes()
    told: dict[str, list[str]] = {name: [] for name in world.fates}

    async def look() -> None:
        for each in (await observer.look()).recent:
            told[each.id] += [change.what for change in changes.of(json.loads(encoded(each)))]

    world.commit()
    if looks & 1:
        await look()
    world.relay()
    if looks & 2:
        await look()
    await world.operate()
    await look()

    snapshot = observer.latest
    timeline = await observer.timeline("k", 10, data=False)
    expected = {name: fate.stage for name, fate in world.fates.items()}
    assert {each.id: str(each.stage) for each in snapshot.recent} == expected
    assert {each.id: str(each.stage) for each in timeline.events} == expected
    assert snapshot.flow.published == world.accepted
    assert snapshot.flow.quarantined == sum(stage in ("quarantined", "parked") for stage in expected.values())
    all_accepted = headline(snapshot).text == "Every committed event has been accepted by the topic."
    assert all_accepted == (world.accepted == len(world.fates))
    for name, stage in expected.items():
        last = [what for what in told[name] if what in ENDED][-1:]
        assert last == ({"committed": [], "published": ["accepted"]}.get(stage, [stage]))


@pytest.mark.parametrize("fate", Fate)
async def test_the_page_and_the_timeline_say_accepted_of_what_was_accepted_alone(fate: Fate) -> None:
    world = World([fate], tells=fate is Fate.DISCARDED_ALTHOUGH_ACCEPTED)
    world.commit()
    world.relay()
    await world.operate()
    await world.deployment.observer.look()

    pages = Pages("t", ConsoleSettings(), formatting.Commands(), ())
    recent = pages.sections(world.deployment.observer.latest)["recent"]
    timeline = pages.timeline(await world.deployment.observer.timeline("k", 10, data=False))

    badges = re.findall(r'class="badge is-([a-z]+)"', recent)
    assert badges == ["accepted" if fate.stage == "published" else fate.stage]
    assert ("Accepted" in timeline) is (fate.stage == "published")
    assert ("Discarded" in timeline and "by jo: a test order" in timeline) is (fate in _DISCARDED)
    assert ("Released" in timeline) is (fate in _RELEASED)


async def test_a_released_event_has_no_time_that_it_took() -> None:
    world = World([Fate.RELEASED], tells=True)
    world.commit()
    await world.deployment.observer.look()
    world.relay()
    await world.deployment.observer.look()
    world.deployment.now = NOW + 2000
    await world.operate()
    [tracked] = (await world.deployment.observer.look()).recent
    [accepted] = [each for each in Changes().of(json.loads(encoded(tracked))) if each.what == "accepted"]

    assert isinstance(tracked, Tracked)
    assert tracked.stage is Stage.PUBLISHED
    assert (tracked.took_s, tracked.not_measured, accepted.after_s) == (None, "an operator released it", None)
