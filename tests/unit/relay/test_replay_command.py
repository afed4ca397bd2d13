"""`python -m relay replay`: which events go out again, in which order, and what is left to the relay."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from outbox_relay.operator.outcomes import Outcome, Removal
from relay.core.documents import SourceDocument
from relay.core.events import Event
from relay.quarantine.items import Filter
from relay.servicebus import encoding, messages
from tests.fuzz.service import refusal
from tests.unit.relay.commands import ENVIRONMENT, Deployment
from tests.unit.relay.topics import FakeTopic

REFUSED = "com.microsoft:argument-error"
BUSY = "com.microsoft:server-busy"
REPLAY = ("replay", "--from", "1000", "--to", "2000")


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


def commit(deployment: Deployment, *identifiers: str) -> None:
    """Events whose key is the letter before the dash, each its own commit."""
    for identifier in identifiers:
        deployment.commit(identifier, identifier.partition("-")[0])


def arrived(topic: FakeTopic) -> dict[str, list[str | None]]:
    return {key: topic.ids(key) for key in topic.accepted}


async def test_events_go_out_in_the_order_of_their_commits_from_every_partition(deployment: Deployment) -> None:
    commit(deployment, "a-2", "z-1", "a-1", "z-2", "b-1")

    run = await deployment.run(*REPLAY)

    assert (run.code, run.out) == (0, "5 event(s) published, 0 invalid, 0 not sent\n")
    assert run.err == "events done: 5 of 5\n"
    assert arrived(deployment.topic) == {"a": ["a-2", "a-1"], "b": ["b-1"], "z": ["z-1", "z-2"]}


async def test_how_far_it_has_come_is_reported_on_the_way(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.cli.terminal._LOG_EVERY_S", 0)
    deployment.outbox.page = 2
    commit(deployment, "a-1", "a-2", "a-3", "a-4", "z-1")

    run = await deployment.run(*REPLAY)

    assert run.err.splitlines() == [f"events done: {done} of 5" for done in (2, 4, 5, 5)]


@pytest.mark.parametrize(("since", "until"), [("1000", "2000"), ("1000.5", "1999.5")])
async def test_the_range_holds_its_beginning_and_not_its_end_in_whole_seconds(
    deployment: Deployment, since: str, until: str
) -> None:
    for at in (999, 1000, 1001, 1998, 1999, 2000):
        deployment.commit(f"a-{at}", "a", _ts=at)

    run = await deployment.data("replay", "--from", since, "--to", until)

    assert deployment.topic.ids("a") == ["a-1000", "a-1001", "a-1998", "a-1999"]
    assert (run["from"], run["to"]) == ("1970-01-01T00:16:40Z", "1970-01-01T00:33:20Z")
    assert (run["dryRun"], run["asNew"], run["stopped"]) == (False, False, False)


@pytest.mark.parametrize(("since", "until"), [("2000", "2000"), ("2000", "1000")])
async def test_an_empty_range_is_wrong_usage(deployment: Deployment, since: str, until: str) -> None:
    assert (await deployment.run("replay", "--from", since, "--to", until)).code == 2


@pytest.mark.parametrize(
    ("options", "ago_s"), [(["--from", "1h"], (3600, 0)), (["--from", "PT2H", "--to", "90m"], (7200, 5400))]
)
async def test_a_range_can_be_how_long_ago(
    deployment: Deployment, options: list[str], ago_s: tuple[int, int]
) -> None:
    before = time.time()
    run = await deployment.data("replay", *options, "--dry-run")
    after = time.time()

    for name, ago in zip(("from", "to"), ago_s, strict=True):
        asked = datetime.fromisoformat(run[name]).timestamp()
        assert before - ago - 1 <= asked <= after - ago + 2


async def test_a_replay_that_can_be_resumed_has_a_fixed_range(deployment: Deployment, tmp_path: Path) -> None:
    state = str(tmp_path / "a.state")
    run = await deployment.run("replay", "--from", "1h", "--to", "2026-02-09", "--state", state)

    assert run.code == 2
    assert re.match(r"error: --state: a replay .* fixed range: write --from 20..-\S+Z\n", run.err)


@pytest.mark.parametrize("options", [["--to", "2000"], []])
async def test_a_range_has_a_beginning(deployment: Deployment, options: list[str]) -> None:
    run = await deployment.run("replay", *options)

    assert (run.code, run.err) == (2, "error: give --from\n")


@pytest.mark.parametrize("since", ["1000", "1970-01-01T00:16:40Z", "4000s"])
async def test_without_an_end_the_range_ends_with_this_second(
    deployment: Deployment, since: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.cli.replay.time", SimpleNamespace(time=lambda: 5000.5))
    for number, at in enumerate((999, 1001, 5000, 5001)):
        deployment.commit(f"a-{number}", "a", _ts=at)

    dry = await deployment.data("replay", "--from", since, "--dry-run")
    run = await deployment.run("replay", "--from", since)

    assert (dry["to"], dry["partitionKeys"]) == ("1970-01-01T01:23:21Z", {"a": 2})
    assert (run.code, run.out) == (0, "2 event(s) published, 0 invalid, 0 not sent\n")
    assert deployment.topic.ids("a") == ["a-1", "a-2"]


async def test_without_an_end_a_replay_cannot_be_resumed(deployment: Deployment, tmp_path: Path) -> None:
    run = await deployment.run("replay", "--from", "1000", "--state", str(tmp_path / "a.state"))

    assert run.code == 2
    assert re.match(r"error: --state: a replay .* fixed range: write --to 20..-\S+Z\n", run.err)


async def test_what_is_no_time_is_wrong_usage(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        await deployment.run("replay", "--from", "1000", "--to", "now")
    assert raised.value.code == 2
    assert "'now' is not a time: write it as 2026-02-09T11:37:00Z" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--from-cursor", "0" * 26], ["--shard", "0"]])
async def test_what_is_for_an_sql_outbox_is_refused(deployment: Deployment, options: list[str]) -> None:
    run = await deployment.run(*REPLAY, *options)

    assert (run.code, "are for an SQL outbox" in run.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--partition-key", "a"], ["a-1", "a-2"]),
        (["--action", "Moved"], ["a-2", "b-2"]),
        (["--action", "Nothing"], []),
        (["--id", "a-2", "--id", "b-1"], ["a-2", "b-1"]),
        (["--id", "nothing"], []),
        (["--partition-key", "b", "--action", "Moved"], ["b-2"]),
    ],
)
async def test_a_partition_key_and_an_action_narrow_it(
    deployment: Deployment, options: list[str], expected: list[str]
) -> None:
    for key in "ab":
        deployment.commit(f"{key}-1", key)
        deployment.commit(f"{key}-2", key, data={"action": "Moved"})
        deployment.commit(f"{key}-3", key, type="contact")
        deployment.commit(f"{key}-4", key, type="contact", data="Moved")

    run = await deployment.data(*REPLAY, *options)

    assert [identifier for ids in arrived(deployment.topic).values() for identifier in ids] == expected
    assert (run["exitCode"], run["matched"], run["unread"]) == (0, len(expected), 0)


async def test_as_new_events_have_an_id_of_the_run_beside_their_own(deployment: Deployment) -> None:
    commit(deployment, "a-1")

    first, second = [await deployment.run(*REPLAY, "--as-new", "--json") for _ in range(2)]
    people = await deployment.run(*REPLAY, "--as-new")

    runs = [run.json["run"] for run in (first, second)]
    assert runs[0] != runs[1]
    assert re.fullmatch("[0-9a-f]{8}", runs[0])
    third = re.fullmatch(r"1 event\(s\) published as new, run (\w+), 0 invalid, 0 not sent\n", people.out)
    assert third
    assert deployment.topic.ids("a") == [f"a-1:replay:{run}" for run in (*runs, third[1])]
    assert all(b"originalId" in message.bare for message in deployment.topic.accepted["a"])


async def test_a_dry_run_counts_and_sends_nothing(deployment: Deployment, tmp_path: Path) -> None:
    commit(deployment, *(f"{chr(97 + number % 26)}{number}-1" for number in range(60)), "a0-2")
    deployment.commit("a0-3", "a0", data={"action": "Moved"})
    deployment.commit("a0-4", "a0", data="no object")
    state = tmp_path / "state"

    run = await deployment.run(*REPLAY, "--dry-run", "--state", str(state))
    data = await deployment.data(*REPLAY, "--dry-run")

    lines = run.out.splitlines()
    assert lines[:4] == [
        "62 event(s) of 60 partition key(s) would be published; nothing was sent.",
        "        61  action 'Named'",
        "         1  action 'Moved'",
        "         3  partition key 'a0'",
    ]
    assert len([line for line in lines if "  partition key 'z" in line or "  partition key" in line]) == 50
    assert lines[-2] == "  and 10 more partition keys; --json lists all"
    assert lines[-1].startswith("  invalid: document 'a0-4' of 'a0': data-not-object: ")
    assert run.err == "events read: 63 of 63\n"
    assert (run.code, data["exitCode"], data["dryRun"]) == (1, 1, True)
    assert (data["actions"], len(data["partitionKeys"])) == ({"Named": 61, "Moved": 1}, 60)
    assert [each["id"] for each in data["invalid"]] == ["a0-4"]
    assert (deployment.topic.transfers, state.exists()) == ([], False)


async def test_a_dry_run_and_the_run_reject_and_leave_the_same_events(deployment: Deployment) -> None:
    topic = deployment.topic
    commit(deployment, "a-1")
    deployment.commit("a-2", "a", data={"action": "Named", "text": "x" * topic.message_limit})
    deployment.commit("a-3", "a", data="no object")
    discarded = [deployment.commit(identifier, "a") for identifier in ("a-4", "a-5")]
    released, parked = deployment.commit("a-6", "a"), deployment.commit("p-1", "p")
    # Larger only by what a message has besides.
    deployment.commit("a-7", "a", data={"action": "Named", "text": "x" * (topic.message_limit - 100)})
    commit(deployment, "a-8", "b-1")
    deployment.records.parked_keys = ["p"]
    for document, outcome in (*((each, Outcome.DISCARDED) for each in discarded), (released, Outcome.RELEASED)):
        deployment.records.put(document)
        (summary,) = await deployment.records.find(Filter(partition_key="a"))
        await deployment.records.remove(summary, None, Removal(outcome, "Ann", "a test order"))

    dry, dry_lines = await deployment.data(*REPLAY, "--dry-run"), await deployment.run(*REPLAY, "--dry-run")
    assert topic.transfers == []
    lines = await deployment.run(*REPLAY)
    run = await deployment.data(*REPLAY)

    assert parked["id"] == "p-1"
    assert dry["partitionKeys"] == {"a": 3, "b": 1}
    assert arrived(topic) == {"a": ["a-1", "a-6", "a-8"], "b": ["b-1"]}
    same = ("exitCode", "matched", "skipped", "unread", "ahead", "parked", "discarded", "invalid")
    assert {name: dry[name] for name in same} == {name: run[name] for name in same}
    assert [(each["id"], each["reason"]) for each in run["invalid"]] == [
        ("a-3", "data-not-object"),
        ("a-2", "message-too-large"),
        ("a-7", "message-too-large"),
    ]
    assert [(each["id"], each["by"], each["why"]) for each in run["discarded"]] == [
        ("a-4", "Ann", "a test order"),
        ("a-5", "Ann", "a test order"),
    ]
    for each in (dry_lines, lines):
        assert "2 event(s) were left, because operators have discarded them. --force publishes them." in each.out
        assert re.search("discarded: document 'a-5' of 'a': by Ann at .*: a test order", each.out)
        assert "invalid: document 'a-2' of 'a': message-too-large: The message has 262" in each.out


async def test_a_discarded_event_is_no_finding_and_forced_it_is_published(
    deployment: Deployment, tmp_path: Path
) -> None:
    document = deployment.commit("a-1", "a")
    deployment.commit("a-2", "a")
    deployment.records.put(document)
    (summary,) = await deployment.records.find(Filter())
    await deployment.records.remove(summary, None, Removal(Outcome.DISCARDED, "Ann"))
    # Another version of the event is another event.
    deployment.commit("a-1", "a", data={"action": "Moved"})
    words = (*REPLAY, "--state", str(tmp_path / "state"))

    run, again = await deployment.data(*words), await deployment.data(*words)
    forced = await deployment.data(*REPLAY, "--force", "--dry-run")

    assert (run["exitCode"], run["published"], len(run["discarded"])) == (0, 2, 1)
    assert again["published"] == 2
    assert (forced["discarded"], forced["partitionKeys"]) == ([], {"a": 3})


@pytest.mark.parametrize("options", [[], ["--as-new"]])
async def test_a_dry_run_measures_the_message_that_would_be_sent(
    deployment: Deployment, options: list[str]
) -> None:
    like_it = {**deployment.commit("b-1", "b"), "data": {"action": "Named", "text": "x" * 200_000}}
    event = deployment.outbox.event_of(SourceDocument.plain(like_it))
    assert isinstance(event, Event)
    # The largest that the topic takes, as long as it has no further property.
    length = 200_000 + deployment.topic.message_limit - len(encoding.encode(messages.plain(event)))
    deployment.commit("a-1", "a", data={"action": "Named", "text": "x" * length})

    dry, run = await deployment.data(*REPLAY, *options, "--dry-run"), await deployment.data(*REPLAY, *options)

    assert dry["invalid"] == run["invalid"]
    assert (len(run["invalid"]), sum(dry["partitionKeys"].values())) == (len(options), run["published"])


async def test_a_dry_run_whose_topic_does_not_say_what_it_takes_ends(deployment: Deployment) -> None:
    deployment.topic.refuses_links = ServiceBusConnectionError(message="no route to the host")
    commit(deployment, "a-1")
    without = await deployment.run(*REPLAY, "--dry-run")
    deployment.commit("a-2", "a", data={"action": "Named", "text": "x" * deployment.topic.message_limit})

    run = await deployment.run(*REPLAY, "--dry-run")

    assert (without.code, run.code) == (0, 3)
    assert "an event may be too large, and the topic did not say what it takes: " in run.err
    assert "no route to the host" in run.err


async def test_a_dry_run_over_few_keys_lists_them_all(deployment: Deployment) -> None:
    commit(deployment, *(f"k{number}-1" for number in range(50)))

    run = await deployment.run(*REPLAY, "--dry-run")

    assert (run.code, len(run.out.splitlines())) == (0, 52)


async def test_what_the_relay_has_not_passed_is_left_to_it_unless_forced(
    deployment: Deployment, tmp_path: Path
) -> None:
    commit(deployment, "a-1", "a-2", "a-3")
    deployment.outbox.reach(1)
    words = (*REPLAY, "--state", str(tmp_path / "state"))

    left = await deployment.data(*words)
    assert (left["exitCode"], left["ahead"], deployment.topic.ids("a")) == (1, {"a": 2}, ["a-1"])
    shown = await deployment.run(*words)
    assert "2 event(s) of 1 partition key(s) were left to the relay" in shown.out
    assert "1 event(s) were handled by an earlier run.\n" in shown.out
    deployment.outbox.reach(3)
    later = await deployment.data(*words)

    assert (later["exitCode"], later["ahead"], later["skipped"]) == (0, {}, 1)
    assert deployment.topic.ids("a") == ["a-1", "a-2", "a-3"]


@pytest.mark.parametrize("passed", [None, 0])
async def test_forced_it_publishes_whatever_is_there(deployment: Deployment, passed: int | None) -> None:
    commit(deployment, "a-1", "p-1")
    deployment.records.parked_keys = ["p"]
    deployment.outbox.reach(passed)

    left = await deployment.data(*REPLAY)
    assert (left["exitCode"], left["ahead"], left["parked"]) == (1, {"a": 1}, {"p": 1})
    assert deployment.topic.transfers == []
    forced = await deployment.data(*REPLAY, "--force")

    assert (forced["exitCode"], forced["ahead"], forced["parked"]) == (0, {}, {})
    assert arrived(deployment.topic) == {"a": ["a-1"], "p": ["p-1"]}


@pytest.mark.parametrize("key", [["a"], {"a": 1}, None, 7])
async def test_what_is_no_key_is_invalid_and_holds_up_no_other_event(
    deployment: Deployment, tmp_path: Path, key: Any
) -> None:
    commit(deployment, "a-1")
    deployment.commit("x", "x", partitionKey=key)
    commit(deployment, "a-2")

    dry = await deployment.data(*REPLAY, "--dry-run")
    run = await deployment.data(*REPLAY, "--state", str(tmp_path / "state"))

    assert (dry["partitionKeys"], [each["id"] for each in dry["invalid"]], dry["ahead"]) == ({"a": 2}, ["x"], {})
    assert (run["published"], [each["id"] for each in run["invalid"]]) == (2, ["x"])
    assert deployment.topic.ids("a") == ["a-1", "a-2"]


async def test_an_event_of_which_nobody_knows_the_place_is_left_to_the_relay(deployment: Deployment) -> None:
    deployment.commit("a-1", "a", _lsn=None)

    run = await deployment.data(*REPLAY)

    assert (run["exitCode"], run["ahead"], deployment.topic.transfers) == (1, {"a": 1}, [])


async def test_the_events_of_parked_keys_are_left_to_their_release(deployment: Deployment) -> None:
    commit(deployment, "p-1", "a-1", "p-2")
    deployment.records.parked_keys = ["p"]

    run = await deployment.run(*REPLAY)
    dry = await deployment.data(*REPLAY, "--dry-run")

    assert run.code == 1
    assert "2 event(s) of 1 parked partition key(s) were left" in run.out
    assert "were left to the relay" not in run.out
    assert (dry["exitCode"], dry["parked"], dry["partitionKeys"]) == (1, {"p": 2}, {"a": 1})
    assert arrived(deployment.topic) == {"a": ["a-1"]}


async def test_what_can_never_be_published_is_reported_and_holds_up_nobody(
    deployment: Deployment, tmp_path: Path
) -> None:
    commit(deployment, "a-1")
    deployment.commit("a-2", "a", data="no object")
    commit(deployment, "a-3", "a-4")
    deployment.topic.by_id["a-3"] = REFUSED
    words = (*REPLAY, "--state", str(tmp_path / "state"))

    run = await deployment.run(*words)
    again = await deployment.data(*words)

    assert (run.code, arrived(deployment.topic)) == (1, {"a": ["a-1", "a-4"]})
    first, *others = run.out.splitlines()
    assert first == "2 event(s) published, 2 invalid, 0 not sent"
    assert [line.split(": ")[1:3] for line in others] == [
        ["document 'a-2' of 'a'", "data-not-object"],
        ["document 'a-3' of 'a'", "message-refused"],
    ]
    assert (again["exitCode"], again["published"], again["dryRun"]) == (1, 2, False)
    assert [(each["id"], each["partitionKey"]) for each in again["invalid"]] == [("a-2", "a"), ("a-3", "a")]


async def test_a_rejected_event_sent_as_new_is_reported_by_its_own_id(deployment: Deployment) -> None:
    commit(deployment, "a-1")
    deployment.topic.answers = [refusal(REFUSED)]

    run = await deployment.data(*REPLAY, "--as-new")

    assert [each["id"] for each in run["invalid"]] == ["a-1"]


async def test_a_key_that_fails_stops_there_and_goes_on_with_the_next_run(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.outbox.page = 2
    commit(deployment, "a-1", "b-1", "a-2", "b-2", "a-3", "b-3", "z-1")
    deployment.topic.by_id["a-2"] = BUSY
    words = (*REPLAY, "--state", str(tmp_path / "state"))

    run = await deployment.run(*words)
    assert (run.code, arrived(deployment.topic)) == (1, {"a": ["a-1"], "b": ["b-1", "b-2", "b-3"], "z": ["z-1"]})
    lines = run.out.splitlines()
    assert lines[:2] == [
        "5 event(s) published, 0 invalid, 2 not sent",
        "Sends failed for these partition keys:",
    ]
    assert lines[2].startswith("  'a': 2 not sent: ")
    assert lines[3:] == ["Fix the cause and run the command again: the same command continues from here."]
    deployment.topic.by_id.clear()
    again = await deployment.data(*words)

    assert (again["exitCode"], again["skipped"], again["published"], again["failures"]) == (0, 5, 7, [])
    assert deployment.topic.ids("a") == ["a-1", "a-2", "a-3"]


async def test_without_a_state_file_it_says_that_it_starts_over(deployment: Deployment) -> None:
    commit(deployment, "a-1", "b-1")
    deployment.topic.by_id["a-1"] = BUSY

    run = await deployment.run(*REPLAY)

    assert run.out.splitlines()[-1].endswith("without --state it starts over.")


async def test_where_nothing_gets_through_it_stops(deployment: Deployment, tmp_path: Path) -> None:
    deployment.outbox.page = 3
    names = [f"{key}-{number}" for number in (1, 2) for key in "abcdef"] + ["z-1"]
    commit(deployment, *names)
    deployment.topic.by_id |= dict.fromkeys(names, BUSY)
    words = (*REPLAY, "--state", str(tmp_path / "state"))

    run = await deployment.run(*words)
    assert (run.code, deployment.topic.accepted) == (3, {})
    assert "No send succeeds any more: stopped before the end of the range.\n" in run.out
    assert not {"f-1", "a-2", "z-1"} & {name for transfer in deployment.topic.transfers for name in transfer}
    data = await deployment.data(*words)
    assert (data["exitCode"], data["stopped"], data["matched"] < 13) == (3, True, True)
    deployment.topic.by_id.clear()

    assert (await deployment.data(*words))["published"] == 13
    assert [deployment.topic.ids(key) for key in "af"] == [["a-1", "a-2"], ["f-1", "f-2"]]


async def test_what_the_feed_did_not_bring_is_reported_and_the_replay_is_not_finished(
    deployment: Deployment, tmp_path: Path
) -> None:
    commit(deployment, "a-1", "a-2", "z-1", "z-2")
    deployment.outbox.hidden = {"a-2", "z-2"}
    words = (*REPLAY, "--state", str(tmp_path / "state"))

    run = await deployment.run(*words)
    assert (run.code, "2 event(s) of the range were not read: run the command again.\n" in run.out) == (1, True)
    deployment.outbox.hidden = set()
    again = await deployment.data(*words)

    assert (again["exitCode"], again["unread"], again["published"]) == (0, 0, 4)


async def test_a_replay_that_is_finished_is_not_done_again(deployment: Deployment, tmp_path: Path) -> None:
    commit(deployment, "a-1", "a-2")
    words = (*REPLAY, "--state", str(tmp_path / "state"))
    assert (await deployment.run(*words)).code == 0
    commit(deployment, "a-3")

    people, data = await deployment.run(*words), await deployment.data(*words)

    assert people.out == "An earlier run has finished this replay: 2 event(s) published, nothing left to do.\n"
    assert (data["exitCode"], data["published"], data["dryRun"], data["stopped"]) == (0, 2, False, False)
    assert deployment.topic.ids("a") == ["a-1", "a-2"]


async def test_a_finished_replay_with_invalid_documents_tells_them_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.commit("a-1", "a", data="no object")
    words = (*REPLAY, "--state", str(tmp_path / "state"))
    await deployment.run(*words)

    run = await deployment.run(*words)

    assert (run.code, "invalid: document 'a-1'" in run.out) == (1, True)


@pytest.mark.parametrize(
    ("until", "ids", "remarks"), [("9000", "01", 1), ("5002", "01", 1), ("5001", "01", 0), ("5000", "0", 0)]
)
async def test_what_is_committed_after_the_second_in_which_the_replay_was_begun_is_the_relays(
    deployment: Deployment, until: str, ids: str, remarks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.cli.replay.time", SimpleNamespace(time=lambda: 5000.5))
    for number, at in enumerate((4999, 5000, 5001, 6000)):
        deployment.commit(f"a-{number}", "a", _ts=at)

    run = await deployment.run("replay", "--from", "1000", "--to", until)

    assert (run.code, deployment.topic.ids("a")) == (0, [f"a-{number}" for number in ids])
    shown = ["The range ends in the future: events committed after the start of the replay are not in it."]
    assert run.out.splitlines()[1:] == shown * remarks


async def test_a_state_file_names_the_outbox_and_the_topic_it_belongs_to(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    await deployment.run(*REPLAY, "--state", str(state))

    header = json.loads(state.read_text().splitlines()[0])
    assert (header["container"], header["topic"]) == ("in memory", "namespace.test/domain-events")
    monkeypatch.setitem(ENVIRONMENT, "SERVICEBUS", ENVIRONMENT["SERVICEBUS"].replace("namespace", "other"))
    assert (await deployment.run(*REPLAY, "--state", str(state))).code == 2
    for name in ("SERVICEBUS", "COSMOS"):
        monkeypatch.delitem(ENVIRONMENT, name)
    monkeypatch.setitem(ENVIRONMENT, "SERVICEBUS__fullyQualifiedNamespace", "namespace.test")
    monkeypatch.setitem(ENVIRONMENT, "COSMOS__accountEndpoint", "https://127.0.0.1:1/")
    same = await deployment.run(*REPLAY, "--state", str(state))
    assert (same.code, same.err) == (0, "")
