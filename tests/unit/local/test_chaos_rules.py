"""A campaign whose rules change: what it deploys, and which streams it expects to have an event."""

from __future__ import annotations

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from local.chaos.deployments import Deployments
from local.chaos.history import LaterHistories
from local.chaos.rules import Change, Rollout, RulesInTime, draw_changes
from local.chaos.sql.recording import time_of
from local.chaos.streams import DEFAULT, FIRST_ROUTES, Layout, OutboxRoutes
from local.stack.environment import Source
from relay.backends.sql.rows import position_time
from relay.config.streams import read_streams, selection_of, text_of_rules
from relay.core.documents import SourceDocument
from relay.routes.generations import Timeline
from tests.unit.local.test_chaos_streams import ENVIRONMENT, event
from verification.journal import entries

ACTIONS = tuple(FIRST_ROUTES[DEFAULT])
TO_DEFAULT: OutboxRoutes = dict.fromkeys(ACTIONS, ("default",))
TO_AUDIT: OutboxRoutes = dict.fromkeys(ACTIONS, ("audit",))


def rules_text(layout: Layout, change: Change, source: Source) -> str:
    return text_of_rules(tomllib.loads(layout.file(source, change.routes, later=True)), "domainEvent")


def test_a_seed_gives_the_same_changes_again() -> None:
    layout = Layout(3, 2, every=True)
    drawn = draw_changes(5, layout, events=1000, changes=20)

    assert drawn == draw_changes(5, layout, events=1000, changes=20)
    assert drawn != draw_changes(6, layout, events=1000, changes=20)
    assert [each.after for each in drawn] == sorted(each.after for each in drawn)
    assert {each.rollout for each in drawn} == set(Rollout)
    assert any(each.is_rollback for each in drawn)


def test_each_change_makes_other_rules_than_those_before() -> None:
    drawn = draw_changes(7, Layout(2, every=True), events=1000, changes=20)

    routes = [FIRST_ROUTES[DEFAULT], *(each.routes[DEFAULT] for each in drawn)]
    assert all(one != other for one, other in pairwise(routes))


@pytest.mark.parametrize("source", list(Source))
@pytest.mark.parametrize(("destinations", "outboxes"), [(2, 1), (3, 1), (3, 2)])
def test_the_relay_has_the_streams_that_the_campaign_judges_after_every_change(
    tmp_path: Path, source: Source, destinations: int, outboxes: int
) -> None:
    layout = Layout(destinations, outboxes, every=True)
    file = tmp_path / "relay.toml"
    for change in draw_changes(3, layout, events=100, changes=20):
        file.write_text(layout.file(source, change.routes, later=True))

        streams = {each.stream for each in read_streams(ENVIRONMENT, app=tmp_path)}

        assert streams == {each.name for each in layout.streams}


def test_the_campaign_expects_what_the_relay_reads_from_the_same_timeline() -> None:
    layout = Layout(3, 2, every=True)
    changes = draw_changes(11, layout, events=100, changes=6)
    rules = [rules_text(layout, each, Source.COSMOS) for each in changes]
    timeline = Timeline.of(rules[0]).extend(100)
    for number, text in enumerate(rules[1:], 1):
        timeline = timeline.change(text, 100 * number).extend(100 * (number + 1))
    keys = {layout.outbox_of(key): key for key in map(str, range(9))}

    for outbox, key in keys.items():
        expected = RulesInTime.stored(json.loads(json.dumps(timeline.item())), outbox)
        assert expected.at(timeline.final_until) is None
        for committed_at in (0, 99, 100, 101, 250, 300, 599):
            routes = expected.at(committed_at)
            for action in (*ACTIONS, "Nowhere", None):
                document = event(key, action)
                own = [each for each in layout.streams if each.outbox == outbox]
                taken = [
                    each
                    for each in own
                    if selection_of(timeline.at(committed_at).rules, outbox, each.destination.name).takes(
                        SourceDocument.plain(document)
                    )
                ]
                assert layout.streams_of(document, routes) == taken


def test_without_a_timeline_each_deployment_counts_from_its_own_time() -> None:
    rules = RulesInTime.deployed([(0, {DEFAULT: TO_DEFAULT}), (50, {DEFAULT: TO_AUDIT})], DEFAULT)

    assert [rules.at(49), rules.at(50), rules.at(10**9)] == [TO_DEFAULT, TO_AUDIT, TO_AUDIT]


def test_a_deployment_replaces_the_file_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    Deployments(file, Layout(2, every=True), Source.SQL, [], later=True)

    assert tomllib.loads(file.read_text())["changed_rules"] == "later"
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


# which streams have an event


def histories() -> LaterHistories:
    found = LaterHistories(Layout(2, every=True))
    found.wrote("k", [event("k", "Created", "e1"), event("k", "Created", "e2")])
    found.wrote_poison(event("k", None, "p"), frozenset({"action-not-string"}))
    return found


def committed(found: LaterHistories) -> dict[str, int]:
    return {name: history.committed for name, history in found.of.items()}


def routes_at(committed_at: int) -> OutboxRoutes | None:
    if committed_at >= 200:
        return None
    return TO_DEFAULT if committed_at < 100 else TO_AUDIT


def test_an_event_is_for_the_streams_of_its_commit_time() -> None:
    found = histories()
    assert not found.complete

    found.assign(DEFAULT, {"e1": 99, "e2": 100, "p": 100}, routes_at)

    assert committed(found) == {"default": 1, "audit": 1}
    assert found.of["audit"].has("k", "e2")
    assert found.of["default"].poison.keys() == {"p"}
    assert (found.unassigned, found.unassigned_since(DEFAULT)) == ({}, None)


def test_an_event_is_for_no_stream_while_its_rules_are_not_settled() -> None:
    found = histories()

    found.assign(DEFAULT, {"e1": 99, "e2": 200}, routes_at)

    assert committed(found) == {"default": 1, "audit": 0}
    assert found.unassigned == {"k": ["e2", "p"]}


def test_an_event_that_another_destination_accepted_is_misrouted() -> None:
    found = histories()
    found.assign(DEFAULT, {"e1": 99, "e2": 100, "p": 100}, routes_at)

    accepted: list[Any] = [
        entries.Accepted(at=1, key="k", id=identifier, digest="", number=number)
        for number, identifier in enumerate(("e1", "e2", "unknown"))
    ]

    assert found.misrouted("default", accepted) == 1
    assert found.misrouted("audit", accepted) == 1
    assert found.misrouted("audit", accepted[1:]) == 0


def test_the_time_of_a_position_is_that_of_the_relay() -> None:
    position = "0193712f-5a00-7abc-8def-0123456789ab"

    assert time_of(position) == position_time(bytes.fromhex(position.replace("-", "")))
