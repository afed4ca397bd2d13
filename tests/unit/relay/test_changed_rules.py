"""Rules in time: which streams a file makes, and which events each one has of a batch that spans generations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from outbox_relay.changefeed.feed import Page
from outbox_relay.changefeed.statements import Entry
from outbox_relay.changefeed.ulid import from_text
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.source import CosmosSourceInTime
from relay.backends.sql.source import Ownership, SqlBatch, SqlSourceInTime, now
from relay.config.streams import destinations_of, in_stream, read_streams, selection_of, text_of_rules
from relay.core.documents import SourceDocument
from relay.core.errors import RulesError
from relay.core.events import Reason, Received
from relay.routes.file import parse
from relay.routes.generations import Timeline
from relay.routes.history import StreamRules
from relay.routes.rulebook import Rulebook
from relay.routes.selection import BY_DEFAULT
from relay.servicebus import messages
from tests.support.in_memory_timelines import InMemoryTimelines
from tests.unit.relay.commands import ENVIRONMENT

OLD = """
changed_rules = "later"
[destinations.audit]
queue = "audit"
[destinations.mail]
topic = "mail"
[[routes]]
when = { action = "Moved" }
to = ["default"]
[[routes]]
when = { action = "Audited" }
to = ["audit"]
"""
NEW = """
changed_rules = "later"
[destinations.default]
[destinations.audit]
queue = "audit"
[[routes]]
when = { action = ["Moved", "Audited", "Other"] }
to = ["audit"]
"""


def rules_of(text: str, event_type: str = "domainEvent") -> str:
    import tomllib

    return text_of_rules(tomllib.loads(text), event_type)


def streams_of(text: str, tmp_path: Path, **environment: str) -> dict[str, Any]:
    (tmp_path / "relay.toml").write_text(text)
    return {each.stream: each for each in read_streams(ENVIRONMENT | environment, app=tmp_path)}


def document(action: str = "Moved", **members: Any) -> SourceDocument:
    stored = {"id": "e", "partitionKey": "k", "type": "domainEvent", "data": {"action": action}}
    return SourceDocument.plain(stored | members)


# the file


def test_a_destination_that_no_rule_names_any_more_is_drained_by_a_stream(tmp_path: Path) -> None:
    streams = streams_of(NEW, tmp_path)

    assert list(streams) == ["audit", "default"]
    assert streams["audit"].selection.is_first
    assert not streams["default"].selection.is_first
    assert not streams["default"].selection.takes(document())


def test_without_any_rule_a_further_destination_is_drained(tmp_path: Path) -> None:
    streams = streams_of('changed_rules = "later"\n[destinations.old]\ntopic = "old"', tmp_path)

    assert [each.selection.takes(document()) for each in streams.values()] == [True, False]


def test_a_destination_is_given_up_by_each_outbox_on_its_own(tmp_path: Path) -> None:
    """The rules of one outbox still name it; the other outbox may have events for it that were not read yet."""
    outboxes = '[outboxes.default]\ncontainer = "data"\n[outboxes.orders]\ncontainer = "orders"\n'
    kept = '[[routes]]\noutbox = "orders"\nto = ["audit"]\n[[routes]]\noutbox = "default"\nto = ["default"]\n'
    given_up = 'changed_rules = "later"\n[destinations.audit]\nqueue = "audit"\n' + outboxes + kept

    streams = streams_of(given_up, tmp_path)

    assert list(streams) == ["default", "audit", "orders-audit"]
    assert not streams["audit"].selection.takes(document())
    assert destinations_of(rules_of(given_up), "default") == ["default"]


@pytest.mark.parametrize("line", ["", 'changed_rules = "unread"'])
def test_rules_count_for_all_events_unless_the_file_says_otherwise(line: str, tmp_path: Path) -> None:
    streams = streams_of(line + OLD.replace('changed_rules = "later"', ""), tmp_path)

    assert list(streams) == ["default", "audit"]
    assert [each.rules for each in streams.values()] == [None, None]


def test_all_streams_have_the_same_rules_whatever_their_layout(tmp_path: Path) -> None:
    streams = streams_of(OLD, tmp_path)

    other = OLD.replace("\n[[routes]]", "\n\n# A comment.\n[[routes]]").replace('["audit"]', "[ 'audit' ]")
    assert {each.rules.text for each in streams.values()} == {rules_of(OLD), rules_of(other)}
    assert rules_of(OLD) != rules_of(OLD, "another-type")


# the rules of a generation


def test_a_stream_has_the_events_of_the_rules_of_a_generation() -> None:
    old, new = rules_of(OLD), rules_of(NEW)

    assert selection_of(old, "default", "default").takes(document())
    assert not selection_of(old, "default", "audit").takes(document())
    assert selection_of(new, "default", "audit").takes(document())
    assert not selection_of(new, "default", "default").takes(document())


def test_a_stream_that_a_generation_does_not_make_has_none_of_its_events() -> None:
    for outbox, destination in (("default", "mail"), ("default", "unknown"), ("orders", "audit")):
        selection = selection_of(rules_of(NEW), outbox, destination)
        assert not selection.takes(document())
        assert not selection.is_first


def test_the_type_of_the_settings_is_that_of_the_generation() -> None:
    assert not selection_of(rules_of(OLD, "other"), "default", "default").takes(document())
    assert selection_of(rules_of(OLD, "other"), "default", "default").takes(document(type="other"))


def test_the_destinations_of_rules_are_those_that_they_name() -> None:
    assert destinations_of(rules_of(OLD), "default") == ["default", "audit"]
    assert destinations_of(rules_of(NEW), "default") == ["audit"]


ODD_FILES = ('{"typos": 1}', "1", "[]")


@pytest.mark.parametrize(
    "rules", ["", "[]", "{}", *(f'{{"file": {each}, "RELAY_EVENT_TYPE": "t"}}' for each in ODD_FILES)]
)
def test_rules_that_this_version_does_not_know_stop_the_stream(rules: str) -> None:
    with pytest.raises(RulesError, match="another version"):
        selection_of(rules, "default", "default")


def test_the_position_of_a_stream_that_is_in_no_file_is_found(tmp_path: Path) -> None:
    settings = streams_of(OLD, tmp_path, SQL="postgresql://h/d")["default"]

    other = in_stream(settings, "mail")

    assert other.sql is not None
    assert (other.stream, other.sql.consumer) == ("mail", "relay-mail")


# batches


async def rules_in_time(destination: str) -> StreamRules:
    """Rules that change at the commit time 100."""
    store = InMemoryTimelines()
    timeline = Timeline.of(rules_of(OLD)).change(rules_of(NEW), 100).extend(1000)
    await store.create(timeline)
    rulebook = Rulebook(store, rules_of(NEW), lambda: 500)
    return StreamRules(rulebook, lambda rules: selection_of(rules, "default", destination))


def stored(number: int, committed_at: int, action: str = "Moved") -> dict[str, Any]:
    return dict(document(action).stored) | {"id": f"e{number}", "_ts": committed_at, "_lsn": number}


def ids(received: Received) -> list[str]:
    return [each.id for each in received.events]


@dataclass
class InMemoryLeases:
    """Leases that have passed an LSN, for each key."""

    passed_lsn: int

    async def positions(self) -> InMemoryLeases:
        return self

    async def has_passed(self, _: object, lsn: int) -> bool:
        return lsn <= self.passed_lsn


async def of_container(destination: str, *documents: dict[str, Any] | None) -> Received:
    source = CosmosSourceInTime(BY_DEFAULT, cast("Containers", None), await rules_in_time(destination))
    return await source.read(documents)


# The service's clocks differ, so times go back.
SPAN = (stored(1, 98), stored(2, 101), stored(3, 99), stored(4, 100, "Audited"), stored(5, 99, "Audited"))


async def test_each_document_of_a_batch_goes_by_the_rules_of_its_time() -> None:
    default, audit = await of_container("default", None, *SPAN), await of_container("audit", *SPAN, None)

    assert (ids(default), ids(audit)) == (["e1", "e3"], ["e2", "e4", "e5"])
    # The place of a document may be empty.
    assert (default.ignored, audit.ignored) == (4, 3)
    assert [each.position for each in audit.events] == [0, 1, 2]


@pytest.mark.parametrize(("times", "destination"), [((98, 99), "default"), ((100, 999), "audit")])
async def test_a_batch_within_one_generation_goes_by_its_rules(times: tuple[int, int], destination: str) -> None:
    documents = [stored(number, time) for number, time in enumerate(times)]

    assert ids(await of_container(destination, *documents)) == ["e0", "e1"]


async def test_a_batch_that_is_not_final_is_read_again_first() -> None:
    assert ids(await of_container("audit", stored(1, 5000))) == ["e1"]


async def test_what_every_lease_has_passed_is_known_of_rules_with_generations_too() -> None:
    containers = InMemoryLeases(passed_lsn=1)
    source = CosmosSourceInTime(BY_DEFAULT, cast("Containers", containers), await rules_in_time("default"))

    received = await source.read([stored(1, 98), stored(2, 99)])

    assert await source.passed_positions(received.events) == {0}


async def test_events_of_one_commit_keep_their_order_across_generations() -> None:
    documents = [stored(2, 100) | {"order": 2, "_lsn": 7}, stored(1, 100) | {"order": 1, "_lsn": 7}, stored(0, 99)]

    assert ids(await of_container("audit", *documents)) == ["e1", "e2"]


async def test_an_event_without_a_rule_is_set_aside_by_the_first_stream_of_its_time() -> None:
    documents = [stored(1, 99, "Nowhere"), stored(2, 100, "Nowhere"), stored(3, 99, "Other")]

    found = {each: await of_container(each, *documents) for each in ("default", "audit")}

    aside = {name: [(each.id, each.reason) for each in received.rejected] for name, received in found.items()}
    assert aside == {
        "default": [("e1", Reason.NO_ROUTE), ("e3", Reason.NO_ROUTE)],
        "audit": [("e2", Reason.NO_ROUTE)],
    }


async def test_an_empty_batch_is_read() -> None:
    assert (await of_container("audit")).documents == 0


def at(seconds: int, number: int) -> Entry:
    ulid = (seconds * 1000 + number).to_bytes(6, "big") + bytes(10)
    row = {"id": f"e{number}", "partition_key": "k", "data": '{"action": "Moved"}'}
    return Entry(ulid, row, {"id": f"e{number}"})


async def test_each_row_of_a_page_goes_by_the_rules_of_its_position() -> None:
    entries = [at(99, 1), at(99, 2), at(100, 3), at(101, 4), Entry(at(102, 5).ulid, None, {"id": "gone"})]
    found = {}
    for destination in ("default", "audit"):
        source = SqlSourceInTime(BY_DEFAULT, cast("Any", None), await rules_in_time(destination))
        found[destination] = await source.read(SqlBatch(0, Page(entries, entries[-1].ulid), Ownership(9, now())))
        alone = await source.read(SqlBatch(0, Page(entries[:1], entries[0].ulid), Ownership(9, now())))
        assert ids(alone) == ids(found[destination])[:1] * (destination == "default")

    assert {name: ids(each) for name, each in found.items()} == {"default": ["e1", "e2"], "audit": ["e3", "e4"]}
    # A deleted row belongs to the first stream of its time.
    assert {name: len(each.rejected) for name, each in found.items()} == {"default": 0, "audit": 1}


def test_a_position_far_ahead_of_the_clock_has_its_own_time() -> None:
    from relay.backends.sql.rows import position_time

    assert position_time(from_text("7ZZZZZZZZZ0000000000000000")) == 281474976710


# the message


def test_what_earlier_rules_have_mapped_is_in_the_message_though_those_of_today_map_nothing() -> None:
    mapped = OLD + '[properties]\ntenant = "/data/tenant"'
    selection = selection_of(rules_of(mapped), "default", "default")
    found = selection.document_of(dict(document().stored) | {"data": {"action": "Moved", "tenant": "t"}})
    assert found is not None
    from relay.backends.cosmos.source import event_of

    event = event_of(found)

    plain = parse({}).sources["default"].fields
    message = messages.contract(None, plain, any_fields=True)(event)  # type: ignore[arg-type]
    assert message.application_properties["tenant"] == "t"
