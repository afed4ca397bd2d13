"""A campaign with several streams: it expects what its relay.toml says, and each stream has its own history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local.chaos.history import Histories, Receipt
from local.chaos.streams import Layout
from local.stack.environment import Source
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.documents import SourceDocument

ENVIRONMENT = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;",
    "SQL": "postgresql://127.0.0.1:1/shop",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA",
}
ACTIONS = ("Created", "NameUpdated", "Deleted", "Nowhere", None)


def event(key: str, action: str | None, identifier: str = "e") -> dict[str, Any]:
    data = {"action": action}
    return {"id": identifier, "partitionKey": key, "type": "domainEvent", "sequence": 1, "data": data}


def streams_of(layout: Layout, source: Source, folder: Path) -> dict[str, Settings]:
    (folder / "relay.toml").write_text(layout.file(source))
    return {each.stream: each for each in read_streams(ENVIRONMENT, app=folder)}


@pytest.mark.parametrize("source", list(Source))
@pytest.mark.parametrize(("destinations", "outboxes"), [(2, 1), (3, 1), (2, 2), (3, 2)])
def test_the_relay_is_told_what_the_campaign_expects(
    tmp_path: Path, source: Source, destinations: int, outboxes: int
) -> None:
    layout = Layout(destinations, outboxes)
    streams = streams_of(layout, source, tmp_path)
    keys = [next(key for key in map(str, range(9)) if layout.outbox_of(key) == each) for each in layout.outboxes]

    assert sorted(each.name for each in layout.streams) == sorted(streams)
    for stream in layout.streams:
        settings = streams[stream.name]
        assert (settings.servicebus.entity, settings.servicebus.is_queue) == (
            stream.destination.entity,
            stream.destination.is_queue,
        )
        for key in keys:
            for action in ACTIONS:
                document = event(key, action)
                expected = stream in layout.streams_of(document)
                assert expected == (
                    layout.outbox_of(key) == stream.outbox
                    and settings.selection.takes(SourceDocument.plain(document))
                )


def test_without_further_destinations_there_is_one_stream_which_has_everything() -> None:
    layout = Layout()

    assert [each.name for each in layout.streams] == ["default"]
    assert all(layout.streams_of(event("k", action)) == layout.streams for action in ACTIONS)


def test_an_event_is_complete_when_each_of_its_destinations_has_it() -> None:
    layout = Layout(3)
    histories = Histories(layout)
    histories.wrote("k", [event("k", "Created")])
    histories.wrote_poison(event("k", "Nowhere", "lost"), frozenset())
    topic, _, contacts = layout.destinations

    assert {name: history.committed for name, history in histories.of.items()} == {
        "default": 1,
        "audit": 0,
        "contacts": 1,
    }
    assert [name for name, history in histories.of.items() if history.poison] == ["default"]
    histories.received(topic, receipt())
    assert not histories.complete
    histories.received(contacts, receipt())
    assert histories.complete


def receipt() -> Receipt:
    return Receipt("e", "k", 1, 0, b'{"action": "Created"}', "Created", 1, processed=True)
