"""`python -m relay quarantine release`: which events go out, in which order, and what stays."""

from __future__ import annotations

import pytest

from tests.unit.relay.commands import Deployment, record_id
from tests.unit.relay.shelf import BUSY, REFUSED, RELEASE_ALL, event, put


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


async def test_what_is_released_goes_out_in_order_and_leaves_the_quarantine(deployment: Deployment) -> None:
    ids = put(deployment, "a-1", "b-1", "a-2")

    run = await deployment.run(*RELEASE_ALL)

    assert (run.code, run.out) == (0, "released 3, still invalid 0, not sent 0\n")
    assert deployment.outbox.closed
    assert "released: 3 of 3\n" in run.err
    assert (deployment.topic.ids("a"), deployment.topic.ids("b")) == (["a-1", "a-2"], ["b-1"])
    assert deployment.records.left == []
    assert len(set(ids)) == 3


async def test_how_far_a_command_has_come_is_reported_on_the_way(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.cli.terminal._LOG_EVERY_S", 0)
    ids = put(deployment, *(f"a-{number}" for number in range(120)))

    released = await deployment.run("quarantine", "release", *ids[:118])
    discarded = await deployment.run("quarantine", "discard", "--all", "--yes")

    shown = [int(line.split()[1]) for line in released.err.splitlines()]
    assert shown == sorted(shown)
    assert len(set(shown)) > 1
    assert shown[-1] == 118
    assert discarded.err.splitlines() == [f"discarded: {done} of 2" for done in (1, 2, 2)]


async def test_only_what_is_chosen_is_released(deployment: Deployment) -> None:
    (first, second) = put(deployment, "a-1", "b-1")
    deployment.records.put(event("b-2", "b"), "set-aside")
    deployment.records.put(event("c-2", "c"), "set-aside")

    by_reason = await deployment.data("quarantine", "release", "--reason", "set-aside", "--partition-key", "b")
    by_id = await deployment.data("quarantine", "release", first[:12], "ffffffff")
    by_key = await deployment.data(*RELEASE_ALL, "--partition-key", "b")

    assert by_reason["released"] == [record_id("b-2")]
    assert (by_id["exitCode"], by_id["released"], by_id["missing"]) == (1, [first], ["ffffffff"])
    assert (by_key["exitCode"], by_key["released"]) == (0, [second])
    assert deployment.records.left == ["c-2"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--partition-key", "k"],
        ["abc", "--all"],
        ["abc", "--reason", "set-aside"],
        ["abc", "--partition-key", "k"],
    ],
)
@pytest.mark.parametrize("command", ["release", "discard"])
async def test_a_choice_that_makes_no_sense_touches_nothing(
    deployment: Deployment, command: str, words: list[str]
) -> None:
    put(deployment, "k-1")

    assert (await deployment.run("quarantine", command, *words, typed="yes\n")).code == 2
    assert (deployment.records.left, deployment.topic.transfers) == (["k-1"], [])


async def test_what_is_not_fit_to_be_sent_stays_with_its_reason_and_holds_up_nobody(
    deployment: Deployment,
) -> None:
    deployment.topic.by_id["b-1"] = REFUSED
    shelf = deployment.records
    shelf.put(event("a-1", "a", data="no object"))
    shelf.put(event("a-2", "a", type="other"))
    put(deployment, "b-1", "b-2")
    shelf.put(event("b-2", "b"), version="later")
    put(deployment, "a-3", "c-1")
    shelf.gone.add("c-1")

    run = await deployment.data(*RELEASE_ALL)

    assert [(each["id"], each["reason"]) for each in run["stillInvalid"]] == [
        (record_id("a-1"), "data-not-object"),
        (record_id("a-2"), "type-differs"),
        (record_id("b-2later"), "id-repeated"),
        (record_id("b-1"), "message-refused"),
    ]
    assert (run["exitCode"], run["notSent"], run["gone"]) == (1, [], [record_id("c-1")])
    assert (deployment.topic.ids("a"), deployment.topic.ids("b")) == (["a-3"], ["b-2"])
    assert shelf.left == ["a-1", "a-2", "b-1", "b-2"]


@pytest.mark.parametrize("parked", [False, True])
async def test_a_record_of_a_later_version_is_left_to_that_version(deployment: Deployment, parked: bool) -> None:
    put(deployment, "a-1", parked=parked)
    later = {**deployment.records._memory.stored[-1], "id": record_id("a-2"), "version": 3}
    later["document"] = {**event("a-2", "a"), "_original": {"id": "a-0"}, "_mapped": {}, "_ts": 1}
    deployment.records._memory.put({**later, "quarantinedAt": "2026-02-09T11:00:01Z"})
    put(deployment, "b-1")

    run = await deployment.data(*RELEASE_ALL)

    assert [(each["id"], each["reason"]) for each in run["stillInvalid"]] == [(record_id("a-2"), "later-version")]
    assert "run the command with that version" in run["stillInvalid"][0]["detail"]
    assert (deployment.topic.ids("a"), deployment.topic.ids("b")) == (["a-1"], ["b-1"])
    assert deployment.records.left == ["a-2"]


async def test_people_are_reported_what_stays_and_why(deployment: Deployment) -> None:
    deployment.topic.by_id["b-1"] = BUSY
    deployment.records.put(event("a-1", "a", type="other"))
    put(deployment, "b-1", "c-1", "d-1")
    deployment.records.gone.add("c-1")

    run = await deployment.run("quarantine", "release", *map(record_id, ("a-1", "b-1", "c-1", "d-1")), "ffffffff")

    assert run.code == 1
    lines = run.out.splitlines()
    assert lines[:4] == [
        "released 1, still invalid 1, not sent 1",
        f"  {record_id('a-1')[:12]}  type-differs: the document's type is not 'domainEvent'",
        f"  {record_id('b-1')[:12]}  not sent, partition key 'b'",
        f"  {record_id('c-1')[:12]}  was removed by somebody else",
    ]
    assert lines[4] == "  ffffffff  is not in quarantine"
    assert lines[5] == "Sends failed for these partition keys; run the same command again:"
    assert lines[6].startswith("  'b': 1 not sent: ")


async def test_of_two_versions_neither_is_called_the_one_to_discard_as_none_may_have_gone_out(
    deployment: Deployment,
) -> None:
    deployment.topic.by_id["a-1"] = REFUSED
    put(deployment, "a-1")
    deployment.records.put(event("a-1", "a"), version="later")

    run = await deployment.data(*RELEASE_ALL)

    assert ([each["reason"] for each in run["stillInvalid"]], run["released"]) == (
        ["id-repeated", "message-refused"],
        [],
    )
    assert run["stillInvalid"][0]["detail"] == (
        "an earlier record has another version of this document: discard the wrong one"
    )


async def test_what_is_gone_meanwhile_is_no_failure(deployment: Deployment) -> None:
    put(deployment, "a-1", "b-1")
    deployment.records.gone.add("a-1")

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], run["released"], run["gone"]) == (0, [record_id("b-1")], [record_id("a-1")])


async def test_behind_an_event_that_fails_nothing_of_its_key_is_sent_in_any_chunk(deployment: Deployment) -> None:
    names = [f"{key}-{number:02}" for number in range(60) for key in "ab"]
    put(deployment, *names)
    deployment.topic.by_id["a-03"] = BUSY

    run = await deployment.data(*RELEASE_ALL)

    assert run["exitCode"] == 1
    assert deployment.topic.ids("b") == [name for name in names if name.startswith("b")]
    sent = deployment.topic.ids("a")
    assert sent == [name for name in names if name.startswith("a")][: len(sent)]
    assert deployment.records.left == [name for name in names if name.startswith("a")][len(sent) :]
    assert len(run["notSent"]) == 60 - len(sent)
    assert [failure["partitionKey"] for failure in run["failures"]] == ["a"]


async def test_where_nothing_gets_through_the_rest_is_not_tried_and_it_is_the_service(
    deployment: Deployment,
) -> None:
    names = [f"{key}-1" for key in "abc"] + [f"z-{number}" for number in range(110)]
    put(deployment, *names)
    deployment.topic.by_id |= dict.fromkeys(names, BUSY)

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], len(run["notSent"])) == (3, 113)
    assert deployment.records.left == names
    assert not any("z-59" in transfer for transfer in deployment.topic.transfers)


async def test_an_event_is_late_where_later_ones_of_its_key_went_out(deployment: Deployment) -> None:
    for document in [deployment.commit("a-1", "a"), deployment.commit("b-1", "b")]:
        deployment.records.put(document)
    deployment.commit("a-2", "a")

    run = await deployment.run(*RELEASE_ALL)

    assert (run.code, run.out.splitlines()[1:]) == (
        0,
        [f"  {record_id('a-1')[:12]}  arrives after later events of its partition key 'a'"],
    )


async def test_what_is_in_quarantine_itself_has_not_gone_out(deployment: Deployment) -> None:
    first, second = deployment.commit("a-1", "a"), deployment.commit("a-2", "a")
    for document in (first, second):
        deployment.records.put(document)

    assert (await deployment.data("quarantine", "release", record_id("a-1")))["late"] == []
    deployment.records.put(first)
    deployment.commit("a-3", "a")
    assert (await deployment.data(*RELEASE_ALL))["late"] == [record_id("a-1"), record_id("a-2")]
