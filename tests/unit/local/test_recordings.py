"""The records of the emulators and a database, as entries of a campaign's journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from local.chaos.recordings import Origin, of_account, of_topic
from local.chaos.sql.recording import recorded
from verification.journal.entries import (
    Accepted,
    Checkpointed,
    Claimed,
    Duplicate,
    Entry,
    Lost,
    Parked,
    Released,
    SetAside,
    digest_of,
)

KEY = "kéy"
BOUNDS = ("", "7F")


def written(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "recording.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def message(number: int, **values: Any) -> dict[str, Any]:
    carried = {"body": '{"n": 1.0}', "subject": "Created", "properties": {"sequence": 4, "type": "x"}}
    return {
        "at": 3.5,
        "entity": "domain-events",
        "outcome": "accepted",
        "sequence_number": number,
        "message_id": "e1",
        "session_id": KEY,
        **carried,
        **values,
    }


def commit(at: float, container: str, *changes: tuple[str, int, dict[str, Any] | None]) -> dict[str, Any]:
    return {
        "at": at,
        "container": f"dbs/outbox/colls/{container}",
        "range": "0",
        "lsn": changes[-1][1],
        "key": [KEY],
        "effective": "05C1",
        "changes": [{"id": name, "place": place, "item": item} for name, place, item in changes],
    }


def lease(at: float, owner: str | None, token: str | None) -> dict[str, Any]:
    bounds = {"Range": {"min": BOUNDS[0], "max": BOUNDS[1]}}
    document = {"LeaseToken": "0", "Owner": owner, "ContinuationToken": token, "FeedRange": bounds}
    return commit(at, "leases", ("host_rid..0", 1, document))


def test_the_topic_accepts_and_drops(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        message(7),
        message(0, outcome="duplicate"),
        message(8, entity="other"),
        message(9, message_id=None, session_id=None, body="\\xff", properties={}),
    )

    accepted, dropped, unreadable = of_topic(path)

    assert accepted == Accepted(at=3.5, key=KEY, id="e1", digest=digest_of({"n": 1.0}, "Created", 4), number=7)
    assert isinstance(dropped, Duplicate)
    assert (unreadable.to_line().count('"key":""'), unreadable.to_line().count('"id":""')) == (1, 1)


def test_an_event_is_where_it_was_committed_first(tmp_path: Path) -> None:
    event = {"type": "domainEvent"}
    path = written(
        tmp_path,
        commit(1.0, "data", ("c", 1, {}), ("e1", 2, event), ("e2", 3, event)),
        commit(2.0, "data", ("e1", 4, event)),
        commit(3.0, "data", ("e2", 5, None)),
    )

    origins = of_account(path).origins

    assert origins["e1"] == Origin(1.0, (3, 1), "05C1")
    assert origins["e2"] == Origin(1.0, (3, 2), "05C1")


def test_each_change_of_a_lease_is_told_by_what_it_changed(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        commit(0.5, "leases", ("host_rid.info", 1, {"id": "host_rid.info"})),
        lease(1.0, None, None),
        lease(2.0, "a", None),
        lease(3.0, "a", '"7"'),
        lease(4.0, "a", '"7"'),
        lease(5.0, "b", '"7"'),
        lease(6.0, None, '"7"'),
    )

    of: dict[str, Any] = {"lease": "0", "covers": BOUNDS}
    assert of_account(path).entries == [
        Claimed(at=2.0, by="a", owner="a", **of),
        Checkpointed(at=3.0, by="a", owner="a", position=(7,), **of),
        Lost(at=5.0, owner="a", **of),
        Claimed(at=5.0, by="b", owner="b", **of),
        Lost(at=6.0, owner="b", **of),
    ]


def test_who_takes_a_lease_and_moves_it_at_once_has_moved_anothers(tmp_path: Path) -> None:
    found = of_account(written(tmp_path, lease(1.0, "a", '"7"'), lease(2.0, "b", '"9"'))).entries

    assert [(entry.kind, getattr(entry, "owner", "")) for entry in found[2:]] == [
        ("checkpointed", "b"),
        ("lost", "a"),
        ("claimed", "b"),
    ]


def test_a_lease_that_is_made_again_is_another_one(tmp_path: Path) -> None:
    gone = commit(2.0, "leases", ("host_rid..0", 2, None))

    found = of_account(written(tmp_path, lease(1.0, "a", '"7"'), gone, gone, lease(3.0, None, '"5"'))).entries

    assert found[2:] == [
        Lost(at=2.0, owner="a", lease="0", covers=BOUNDS),
        Checkpointed(at=3.0, owner="", position=(5,), lease="0~1", covers=BOUNDS),
    ]


def record(at: float, name: str, reason: str) -> dict[str, Any]:
    item = {"type": "quarantinedEvent", "partitionKey": KEY, "documentId": name, "reason": reason}
    return commit(at, "quarantine", (f"record of {name}", 1, item))


EXPECTED: list[Entry] = [
    SetAside(at=1.0, key=KEY, id="e1", reason="data-not-object"),
    Parked(at=2.0, key=KEY, id="e2"),
    Released(at=4.0, key=KEY, id="e2"),
]


def test_records_are_stored_once_and_removed(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        record(1.0, "e1", "data-not-object"),
        commit(1.5, "quarantine", ("parked", 2, {"type": "parkedKey", "partitionKey": KEY})),
        record(2.0, "e2", "key-parked"),
        record(3.0, "e2", "key-parked"),
        commit(3.5, "quarantine", ("parked", 3, None)),
        commit(4.0, "quarantine", ("record of e2", 4, None)),
    )

    assert of_account(path).entries == EXPECTED


def ulid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012x}"


COMMITTED = "outbox.domain_event"
PLACED, CLAIMED = f"changefeed.feed:{COMMITTED}", f"changefeed.claim:{COMMITTED}"
STORED = REMOVED = "relay.item"


def claim(owner: str | None, epoch: int, cursor: int) -> dict[str, Any]:
    return {"consumer": "relay", "shard": 2, "owner": owner, "epoch": epoch, "cursor": ulid(cursor)}


def test_a_database_says_the_same_of_its_rows() -> None:
    stored = {"key": "d", "of": KEY}
    found = recorded(
        [
            (0.1, "committed", COMMITTED, {"id": "e1"}),
            (0.2, "committed", COMMITTED, {"id": "e2"}),
            (0.9, "placed", PLACED, {"id": "e1", "shard": 2, "ulid": ulid(17)}),
            (1.0, "stored", STORED, {**stored, "id": "1", "document": "e1", "reason": "data-not-object"}),
            (2.0, "stored", STORED, {**stored, "id": "2", "document": "e2", "reason": "key-parked"}),
            (4.0, "removed", REMOVED, {"key": "d", "id": "2"}),
            (5.0, "claimed", CLAIMED, claim(None, 0, 0)),
            (6.0, "claimed", CLAIMED, claim("a", 1, 0)),
            (7.0, "claimed", CLAIMED, claim("a", 1, 17)),
            (8.0, "claimed", CLAIMED, claim("a", 2, 17)),
            (9.0, "claimed", CLAIMED, claim("a", 3, 17) | {"consumer": "relay-audit"}),
            (9.0, "stored", "relay.item_audit", {**stored, "id": "3", "document": "e2", "reason": "set-aside"}),
        ]
    )

    assert found.origins == {"e1": Origin(0.1, (17,), "2"), "e2": Origin(0.2, None, "")}
    assert found.entries == [
        *EXPECTED,
        Claimed(at=6.0, by="a", lease="2", owner="a", epoch=1),
        Checkpointed(at=7.0, by="a", lease="2", owner="a", epoch=1, position=(17,)),
        Lost(at=8.0, lease="2", owner="a", epoch=1),
        Claimed(at=8.0, by="a", lease="2", owner="a", epoch=2),
    ]
