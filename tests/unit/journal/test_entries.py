"""The format of a journal: what is written is read again, and anything else is refused by line and name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.journal.entries import KINDS, Committed, Entry, JournalError, digest_of, load, parse, save

OF: dict[str, Any] = KINDS
EVENT: dict[str, Any] = {"at": 1.5, "key": "kéy", "id": "e\ud800"}
LEASE: dict[str, Any] = {"at": 2, "by": "p1", "lease": "0", "owner": "p1"}
ENTRIES: list[Entry] = [
    Committed(**EVENT, position=(3, 1), digest="d", place="05C1", sound=False),
    OF["read"](**LEASE, after=(0,), upto=(3, 1)),
    OF["accepted"](**EVENT, digest="d", number=2**63),
    OF["duplicate"](**EVENT, digest="d", number=0),
    OF["set_aside"](**EVENT, reason="data-not-object"),
    *(OF[kind](**EVENT) for kind in ("parked", "ordered", "released", "discarded")),
    OF["claimed"](**LEASE, epoch=4),
    OF["lost"](**LEASE, covers=("", "7F")),
    OF["checkpointed"](**LEASE, epoch=4, position=(2**127,)),
    OF["handled"](**EVENT, consumer="all", number=7),
    *(OF[kind](at=3, by="p1") for kind in ("killed", "frozen", "resumed")),
]
ALTERED = '{"kind":"accepted","at":1,"key":"k","id":"e","digest":"d","number":'


def test_each_kind_is_read_as_it_was_written() -> None:
    assert {entry.kind for entry in ENTRIES} == set(KINDS)
    assert list(parse(entry.to_line() for entry in ENTRIES)) == ENTRIES


def test_a_line_begins_with_its_kind_and_has_no_values_that_are_absent() -> None:
    claimed = OF["claimed"](at=1, lease="0", owner="p1")

    assert claimed.to_line() == '{"kind":"claimed","at":1,"by":"","lease":"0","owner":"p1"}'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"kind":"forgotten","at":1}', "unknown kind 'forgotten'; the kinds are committed, read, accepted"),
        ('{"at":1}', "unknown kind None"),
        ('{"kind":"killed","at":1,"cause":"x"}', "killed has no cause"),
        (
            '{"kind":"ordered","at":1,"key":"k"}',
            "ordered is incomplete: missing 1 required keyword-only argument: 'id'",
        ),
        ('{"kind":"ordered","at":1,"key":"k","id":7}', "the id of ordered is 7, and has to be a text"),
        (ALTERED + "true}", "the number of accepted is True, and has to be a whole number"),
        (ALTERED + "1.0}", "the number of accepted is 1.0"),
        (ALTERED + '"1"}', "the number of accepted is '1'"),
        ('{"kind":"killed","at":"now"}', "the at of killed is 'now', and has to be a number"),
        ('{"kind":"claimed","at":1,"lease":"0","owner":"p","covers":["a"]}', "has to be two texts"),
        ('{"kind":"checkpointed","at":1,"lease":"0","owner":"p","position":[]}', "a list of whole numbers"),
        ("[]", "an entry is a JSON object"),
        ('{"kind":"kil', "no JSON"),
    ],
)
def test_a_line_that_is_no_entry_is_refused(line: str, says: str) -> None:
    with pytest.raises(JournalError, match="line 2: ") as refused:
        list(parse(['{"kind":"killed","at":1}', line]))

    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["journal.jsonl", "journal.jsonl.gz"])
def test_a_file_holds_the_entries_and_is_the_same_each_time(tmp_path: Path, name: str) -> None:
    save(tmp_path / name, ENTRIES)
    first = (tmp_path / name).read_bytes()

    save(tmp_path / name, load(tmp_path / name))

    assert (tmp_path / name).read_bytes() == first
    assert load(tmp_path / name) == ENTRIES


@given(st.integers(), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_values_are_read_as_they_were_written(number: int, text: str, at: float) -> None:
    entry: Entry = OF["accepted"](at=at, by=text, key=text, id=text, digest=text, number=number)

    assert list(parse([entry.to_line()])) == [entry]


def test_a_digest_tells_values_apart_that_python_does_not() -> None:
    values = [1, 1.0, True, 0, 0.0, -0.0, "\ud800", "\ufffd", None, {}, []]

    assert len({digest_of(value) for value in values}) == len(values)
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of({}, "Created", 1) != digest_of({}, "Created", 2)
