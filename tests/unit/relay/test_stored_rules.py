"""The rules of a stream by the time of a commit, as a reader finds them stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outbox_relay.operator.backends.rules import StoredRules, stored_rules
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.documents import SourceDocument
from relay.core.errors import RulesError
from relay.routes.generations import Timeline
from relay.routes.rulebook import StoredTimeline, Timelines
from tests.support.in_memory_timelines import InMemoryTimelines
from tests.unit.relay.commands import ENVIRONMENT

FILE = """
changed_rules = "later"
[destinations.default]
[destinations.audit]
queue = "audit"
[[routes]]
to = ["{to}"]
"""

EVENT = SourceDocument.plain({"id": "e", "partitionKey": "k", "type": "domainEvent", "data": {}})


class CountedTimelines(InMemoryTimelines):
    """A store that counts how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read(self) -> StoredTimeline | None:
        self.reads += 1
        return await super().read()


def stream(to: str, tmp_path: Path) -> Settings:
    """The stream `default` of an outbox whose events go to a destination."""
    (tmp_path / "relay.toml").write_text(FILE.format(to=to))
    return next(each for each in read_streams(ENVIRONMENT, app=tmp_path) if each.stream == "default")


def text_of(settings: Settings) -> str:
    assert settings.rules is not None
    return settings.rules.text


async def test_the_store_is_read_again_only_beyond_the_times_for_which_the_rules_are_final(tmp_path: Path) -> None:
    before, now = stream("default", tmp_path), stream("audit", tmp_path)
    store = CountedTimelines()
    await store.create(Timeline.of(text_of(before)).extend(100))
    rules = StoredRules(now, store)

    at = await rules.until(99)
    for time in (0, 50, 99):
        await rules.until(time)
    assert (store.reads, at(99).takes(EVENT), at(100).takes(EVENT)) == (1, True, True)
    stored = await InMemoryTimelines.read(store)
    assert stored is not None
    await store.replace(stored.timeline.change(text_of(now), 100).extend(200), stored.etag)
    later = await rules.until(100)

    assert (store.reads, later(99).takes(EVENT), later(100).takes(EVENT)) == (2, True, False)
    assert not (await rules.last()).takes(EVENT)
    assert [each.takes(EVENT) for each in await rules.all()] == [True, False]
    assert store.reads == 2


async def test_without_a_generation_the_rules_of_the_file_count(tmp_path: Path) -> None:
    rules = StoredRules(stream("audit", tmp_path), InMemoryTimelines())

    assert not (await rules.until(100))(50).takes(EVENT)


async def test_generations_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    store = InMemoryTimelines()
    store.is_down = True

    with pytest.raises(RulesError, match="the store is down"):
        await StoredRules(stream("audit", tmp_path), store).until(100)


def test_nothing_is_opened_where_the_rules_count_for_all_events(tmp_path: Path) -> None:
    def opened() -> Timelines:
        raise AssertionError("the store was opened")

    assert stored_rules(replace(stream("audit", tmp_path), rules=None), opened) is None
