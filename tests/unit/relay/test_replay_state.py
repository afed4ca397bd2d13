"""The state file of a replay: what it remembers, whatever cut it short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outbox_relay.operator.cli.replay_run import Invalid, ReplayIdentity, ReplayState, new_id
from relay.backends.outbox import Range
from relay.core.documents import SourceDocument
from relay.core.errors import ServiceError, UsageError

IDENTITY = ReplayIdentity(
    Range(10, 20),
    as_new=True,
    event_type="domainEvent",
    container="rid",
    topic="n/t",
    run="aaaa",
    started=30,
)


def document(identifier: str, lsn: int, key: str = "a") -> SourceDocument:
    return SourceDocument.plain({"id": identifier, "partitionKey": key, "_lsn": lsn})


def test_what_was_dealt_with_is_remembered_by_place_and_the_rest_is_not(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    state = ReplayState.begin(IDENTITY, file)
    state.advance({"a": [document("1", 5), document("2", 7), document("3", 7)]}, 3, [])

    again = ReplayState.begin(IDENTITY, file)

    covered = {
        (identifier, lsn, key): again.covers(document(identifier, lsn, key))
        for identifier, lsn, key in [
            ("1", 5, "a"),
            ("2", 7, "a"),
            ("3", 7, "a"),
            ("4", 7, "a"),
            ("5", 8, "a"),
            ("1", 5, "b"),
        ]
    }
    assert list(covered.values()) == [True, True, True, False, False, False]
    assert again.published == 3


def test_two_chunks_that_end_within_one_transaction_are_both_remembered(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    state = ReplayState.begin(IDENTITY, file)
    state.advance({"a": [document("1", 7)]}, 1, [])
    state.advance({"a": [document("2", 7)]}, 1, [])

    again = ReplayState.begin(IDENTITY, file)

    assert [again.covers(document(identifier, 7)) for identifier in ("1", "2", "3")] == [True, True, False]


def test_what_was_dealt_with_is_known_without_reading_the_file_again(tmp_path: Path) -> None:
    state = ReplayState.begin(IDENTITY, tmp_path / "replay.state")
    state.advance({"a": [document("1", 5)], "b": []}, 1, [])

    assert [state.covers(document("1", 5)), state.covers(document("2", 6))] == [True, False]
    assert (state.published, state.finished) == (1, False)


def test_without_a_file_what_was_published_is_counted_and_the_end_noted() -> None:
    state = ReplayState.begin(IDENTITY, None)
    state.advance({"a": [document("1", 5)]}, 1, [])
    state.advance({}, 2, [])
    assert (state.published, state.finished) == (3, False)

    state.finish()

    assert state.finished


def test_a_state_file_of_an_earlier_release_is_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    file.write_text(
        '{"replay": 1, "since": 10, "until": 20, "partition_key": null, "action": null, "as_new": true, '
        '"event_type": "domainEvent", "container": "rid", "topic": "n/t", "run": "aaaa", "started": 30}\n'
        '{"published": 2, "places": {"a": {"lsn": 7, "ids": ["1"]}}, "invalid": []}\n'
    )

    state = ReplayState.begin(IDENTITY, file)

    assert (state.published, state.covers(document("1", 7)), state.covers(document("2", 7))) == (2, True, False)


def test_the_run_and_the_start_are_those_of_the_first_run(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    ReplayState.begin(IDENTITY, file)

    again = ReplayState.begin(replace(IDENTITY, run="bbbb", started=99), file)

    assert (again.identity.run, again.identity.started) == ("aaaa", 30)


def test_a_line_cut_short_is_forgotten_and_the_file_goes_on_behind_the_last_whole_one(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    state = ReplayState.begin(IDENTITY, file)
    state.advance({"a": [document("1", 5)]}, 1, [])
    whole = file.read_bytes()
    state.advance({"a": [document("2", 6)]}, 1, [])
    for length in range(len(whole), len(file.read_bytes())):
        cut = tmp_path / f"cut-{length}"
        cut.write_bytes(file.read_bytes()[:length])

        again = ReplayState.begin(IDENTITY, cut)
        again.advance({"a": [document("2", 6)]}, 1, [])

        assert ReplayState.begin(IDENTITY, cut).published == 2
        assert cut.read_bytes() == file.read_bytes()


def test_invalid_documents_are_remembered_once(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    invalid = Invalid("1", "a", "data-not-object", "said")
    state = ReplayState.begin(IDENTITY, file)
    state.advance({}, 0, [invalid])

    again = ReplayState.begin(IDENTITY, file)
    again.advance({}, 0, [invalid])

    assert list(again.invalid.values()) == [invalid]
    assert file.read_text().count("data-not-object") == 1


def test_a_finished_replay_stays_finished(tmp_path: Path) -> None:
    ReplayState.begin(IDENTITY, tmp_path / "s").finish()

    assert ReplayState.begin(IDENTITY, tmp_path / "s").finished


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("since", 11), ("until", 21), ("partition_key", "a"), ("action", "A"), ("ids", ["i"])),
        *(("shard", 0), ("cursor", "0" * 26)),
        *(("as_new", False), ("event_type", "other"), ("container", "other"), ("topic", "n/other")),
        ("source", "sql"),
    ],
)
def test_the_file_of_another_replay_is_refused_and_left_alone(tmp_path: Path, name: str, value: object) -> None:
    other = ReplayIdentity.from_header(IDENTITY.header() | {name: value})
    file = tmp_path / "replay.state"
    ReplayState.begin(IDENTITY, file)
    before = file.read_bytes()

    with pytest.raises(UsageError, match=f"belongs to another replay, which differs in {name}"):
        ReplayState.begin(other, file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("text", ["", "notes of mine", '{"replay": 99}\n', '{"a": 1}\n', "[]\n", "1\n"])
def test_a_file_that_is_no_state_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)

    with pytest.raises(UsageError, match="is not the state file of a replay"):
        ReplayState.begin(IDENTITY, file)
    assert file.read_text() == text


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="cannot be read or written"):
        ReplayState.begin(IDENTITY, tmp_path / "nowhere" / "replay.state")


def test_a_file_that_cannot_be_written_any_more_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "replay.state"
    state = ReplayState.begin(IDENTITY, file)
    file.unlink()
    file.mkdir()

    with pytest.raises(ServiceError, match="the state file cannot be written"):
        state.advance({"a": [document("1", 5)]}, 1, [])


def test_without_places_in_the_change_feed_progress_is_not_kept_in_silence(tmp_path: Path) -> None:
    bare = SourceDocument.plain({"id": "1", "partitionKey": "a"})

    assert not ReplayState.begin(IDENTITY, None).covers(bare)
    with pytest.raises(ServiceError, match="run without --state"):
        ReplayState.begin(IDENTITY, tmp_path / "s").covers(bare)


@pytest.mark.parametrize(
    "identifier", ["\U0001f600" * 56, "\U0001f600" * 57, "a" + "\U0001f600" * 63, "\ud800" * 128]
)
def test_a_new_id_fits_as_service_bus_counts_characters(identifier: str) -> None:
    new = new_id(identifier, "0a1b2c3d")

    assert len(new.encode("utf-16-le", errors="surrogatepass")) // 2 <= 128
    assert new.endswith(":replay:0a1b2c3d")


def test_a_new_id_tells_its_origin_and_fits() -> None:
    assert new_id("d6a5f4b2", "0a1b2c3d") == "d6a5f4b2:replay:0a1b2c3d"
    first, second = "x" * 127 + "1", "x" * 127 + "2"
    assert len(new_id(first, "0a1b2c3d")) == 128
    assert new_id(first, "0a1b2c3d") != new_id(second, "0a1b2c3d")
    assert new_id("x" * 112, "0a1b2c3d") == "x" * 112 + ":replay:0a1b2c3d"
