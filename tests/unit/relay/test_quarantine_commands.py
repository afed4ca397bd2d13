"""`python -m relay quarantine`: which events go out, in which order, and what stays."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from relay import holds
from relay.cli.shell import python
from relay.quarantine.items import Item
from tests.support.operators import shell_words
from tests.unit.relay.commands import Deployment, record_id

REFUSED = "com.microsoft:argument-error"
BUSY = "com.microsoft:server-busy"
RELEASE_ALL = ("quarantine", "release", "--all")


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


def event(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    document = {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": "Named"}}
    return document | changes


def order(identifier: str, event_id: str) -> Item:
    """A pending order of the key a, whose id ends so."""
    made = holds.order("a", event_id)
    return {**made, "id": f"set-aside:{identifier}", "orderedAt": "2026-02-09T11:00:00Z"}


def put(deployment: Deployment, *identifiers: str, parked: bool = False) -> list[str]:
    """Records of events whose key is the letter before the dash; returns the records' ids."""
    keys = [identifier.partition("-")[0] for identifier in identifiers]
    if parked:
        deployment.records.parked_keys += dict.fromkeys(keys)
    return [
        deployment.records.put(event(identifier, key)) for identifier, key in zip(identifiers, keys, strict=True)
    ]


# release


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
    monkeypatch.setattr("relay.cli.terminal._LOG_EVERY_S", 0)
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


# release of parked keys


async def test_a_parked_key_goes_out_in_order_and_is_parked_no_more(deployment: Deployment) -> None:
    put(deployment, *(f"p-{number:02}" for number in range(60)), parked=True)
    put(deployment, "a-1")

    run = await deployment.run(*RELEASE_ALL)

    assert (run.code, run.out.splitlines()[1:]) == (0, ["  partition key 'p' is no longer parked"])
    assert deployment.topic.ids("p") == [f"p-{number:02}" for number in range(60)]
    assert (deployment.records.left, deployment.records.parked_keys) == ([], [])
    assert run.err.endswith("released: 61 of 61\n")


async def test_what_comes_while_a_parked_key_is_released_goes_out_behind_it(deployment: Deployment) -> None:
    put(deployment, "p-1", parked=True)
    deployment.records.coming = [event("p-2", "p"), event("p-3", "p")]

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], run["unparked"], run["stillParked"]) == (0, ["p"], {})
    assert deployment.topic.ids("p") == ["p-1", "p-2", "p-3"]


async def test_what_a_listing_still_has_is_not_taken_for_a_record_again(deployment: Deployment) -> None:
    put(deployment, "p-1", parked=True)
    deployment.records.behind = True
    deployment.records.coming = [event("p-2", "p")]

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], run["unparked"], run["gone"]) == (0, ["p"], [])
    assert deployment.topic.ids("p") == ["p-1", "p-2"]


async def test_a_record_that_is_not_fit_holds_up_the_chunks_behind_it_too(deployment: Deployment) -> None:
    put(deployment, "p-1", parked=True)
    deployment.records.put(event("p-2", "p", type="other"))
    put(deployment, *(f"p-{number}" for number in range(3, 120)))

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], run["stillParked"], deployment.topic.ids("p")) == (1, {"p": 118}, ["p-1"])


async def test_a_release_that_does_not_catch_up_ends(deployment: Deployment) -> None:
    put(deployment, "p-0", parked=True)
    deployment.records.coming = [event(f"p-{number}", "p") for number in range(1, 1000)]

    async with asyncio.timeout(30):
        run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], run["stillParked"]) == (1, {"p": 1})
    assert 10 <= len(run["released"]) <= 100
    assert deployment.topic.ids("p") == [f"p-{number}" for number in range(len(run["released"]))]


@pytest.mark.parametrize(
    ("document", "condition", "reason", "refused"),
    [
        (event("p-2", "p", data="no object"), None, "data-not-object", "p-2"),
        (event("p-2", "p", type="other"), None, "type-differs", "p-2"),
        (event("p-2", "p"), REFUSED, "message-refused", "p-2"),
    ],
)
async def test_a_record_that_is_not_fit_holds_up_those_behind_it(
    deployment: Deployment, document: dict[str, Any], condition: str | None, reason: str, refused: str
) -> None:
    put(deployment, "p-1", parked=True)
    deployment.records.put(document)
    put(deployment, "p-3", "p-4")
    if condition is not None:
        deployment.topic.by_id[refused] = condition

    run = await deployment.data(*RELEASE_ALL)

    assert deployment.topic.ids("p") == ["p-1"]
    assert deployment.records.left == ["p-2", "p-3", "p-4"]
    assert [(each["id"], each["reason"]) for each in run["stillInvalid"]] == [(record_id("p-2"), reason)]
    assert (run["exitCode"], run["unparked"], run["stillParked"]) == (1, [], {"p": 3})
    assert deployment.records.parked_keys == ["p"]


async def test_another_version_of_a_document_of_a_parked_key_is_not_sent(deployment: Deployment) -> None:
    put(deployment, "p-1", parked=True)
    deployment.records.put(event("p-1", "p", data={"action": "Other"}), version="later")
    put(deployment, "p-2")

    run = await deployment.data(*RELEASE_ALL)

    assert [each["reason"] for each in run["stillInvalid"]] == ["id-repeated"]
    assert (deployment.topic.ids("p"), deployment.records.left) == (["p-1"], ["p-1", "p-2"])


async def test_a_record_that_somebody_removes_meanwhile_holds_up_nobody(deployment: Deployment) -> None:
    put(deployment, "p-1", "p-2", "p-3", parked=True)
    deployment.records.gone.add("p-2")

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], run["gone"], run["unparked"]) == (0, [record_id("p-2")], ["p"])
    assert deployment.topic.ids("p") == ["p-1", "p-3"]


async def test_a_chosen_record_of_a_parked_key_waits_for_those_before_it(deployment: Deployment) -> None:
    ids = put(deployment, "p-1", "p-2", "p-3", "p-4", parked=True)

    waits = await deployment.data("quarantine", "release", ids[1], ids[3])
    goes = await deployment.run("quarantine", "release", ids[0], ids[1], ids[3])

    assert (waits["exitCode"], waits["released"], waits["stillParked"]) == (1, [], {"p": 4})
    assert [(each["id"], each["reason"]) for each in waits["stillInvalid"]] == [
        (ids[1], "key-parked"),
        (ids[3], "key-parked"),
    ]
    assert goes.code == 1
    assert goes.out.splitlines() == [
        "released 2, still invalid 1, not sent 0",
        f"  {ids[3][:12]}  key-parked: an earlier record of its parked key must be released or discarded first",
        "  partition key 'p' stays parked, with 2 record(s). To release them in order:",
        f"    {python()} -m relay quarantine release --all --partition-key=p",
    ]
    assert (deployment.topic.ids("p"), deployment.records.left) == (["p-1", "p-2"], ["p-3", "p-4"])


async def test_the_last_chosen_record_of_a_parked_key_lets_it_go_on(deployment: Deployment) -> None:
    (only,) = put(deployment, "p-1", parked=True)

    run = await deployment.data("quarantine", "release", only)

    assert (run["exitCode"], run["unparked"], deployment.records.parked_keys) == (0, ["p"], [])


async def test_with_chosen_records_what_comes_meanwhile_stays(deployment: Deployment) -> None:
    (only,) = put(deployment, "p-1", parked=True)
    deployment.records.coming = [event("p-2", "p")]

    run = await deployment.data("quarantine", "release", only)

    assert (run["exitCode"], run["released"], run["stillParked"]) == (1, [only], {"p": 1})
    assert (run["stillInvalid"], deployment.records.left) == ([], ["p-2"])


async def test_a_refused_record_that_was_chosen_is_reported_once(deployment: Deployment) -> None:
    ids = put(deployment, "p-1", "p-2", parked=True)
    deployment.topic.by_id["p-1"] = REFUSED

    run = await deployment.data("quarantine", "release", *ids)

    assert [(each["id"], each["reason"]) for each in run["stillInvalid"]] == [
        (ids[0], "message-refused"),
        (ids[1], "key-parked"),
    ]


async def test_a_parked_key_whose_send_fails_stays_as_it_is(deployment: Deployment) -> None:
    ids = put(deployment, "p-1", "p-2", parked=True)
    put(deployment, "a-1")
    deployment.topic.by_id |= {"p-1": BUSY}

    run = await deployment.data("quarantine", "release", *ids, record_id("a-1"))

    assert (run["exitCode"], run["stillInvalid"], run["stillParked"]) == (1, [], {"p": 2})
    assert (sorted(run["notSent"]), deployment.records.left) == (sorted(ids), ["p-1", "p-2"])


async def test_parked_keys_are_not_tried_where_nothing_gets_through(deployment: Deployment) -> None:
    put(deployment, "p-1", parked=True)
    names = [f"{key}-1" for key in "abc"]
    put(deployment, *names)
    deployment.topic.by_id |= dict.fromkeys(names, BUSY)

    run = await deployment.data(*RELEASE_ALL)

    assert (run["exitCode"], deployment.topic.ids("p"), deployment.records.left) == (3, [], ["p-1", *names])


async def test_a_key_without_a_record_is_let_go_by_a_release_of_all_and_by_no_other(
    deployment: Deployment,
) -> None:
    put(deployment, "a-1", "b-1")
    deployment.records.parked_keys = ["p", "q"]

    one = await deployment.data("quarantine", "release", record_id("a-1"))
    some = await deployment.data(*RELEASE_ALL, "--reason", "set-aside")
    its_own = await deployment.data(*RELEASE_ALL, "--partition-key", "q")
    every = await deployment.data(*RELEASE_ALL)

    assert [run["unparked"] for run in (one, some, its_own, every)] == [[], [], ["q"], ["p"]]
    assert [run["exitCode"] for run in (one, some, its_own, every)] == [0] * 4


SUGGESTED = re.compile(rf"^ {{4}}{re.escape(python())} -m relay (.+)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("document", "condition", "version"),
    [
        (event("p-2", "p", data="no object"), None, ""),
        (event("p-2", "p", type="other"), None, ""),
        (event("p-2", "p"), REFUSED, ""),
        (event("p-1", "p"), None, "later"),
    ],
    ids=["invalid", "of another type", "refused", "another version"],
)
async def test_what_a_release_suggests_releases_the_key(
    deployment: Deployment, document: dict[str, Any], condition: str | None, version: str
) -> None:
    put(deployment, "p-1", parked=True)
    deployment.records.put(document, version=version)
    put(deployment, "p-3", "p-4")
    if condition is not None:
        deployment.topic.by_id["p-2"] = condition
    run = await deployment.run(*RELEASE_ALL)

    suggested = [shell_words(words) for words in SUGGESTED.findall(run.out)]
    codes = [(await deployment.run(*words, typed="yes\n")).code for words in suggested]

    assert (len(suggested), codes) == (2, [0, 0])
    assert (deployment.topic.ids("p"), deployment.records.parked_keys) == (["p-1", "p-3", "p-4"], [])


async def test_what_a_release_of_some_suggests_releases_the_rest(deployment: Deployment) -> None:
    ids = [deployment.records.put(event(f"p-{number}", "-p q")) for number in range(3)]
    deployment.records.parked_keys = ["-p q"]
    run = await deployment.run("quarantine", "release", ids[2])

    [suggested] = [shell_words(words) for words in SUGGESTED.findall(run.out)]

    assert (await deployment.run(*suggested)).code == 0
    assert (deployment.topic.ids("-p q"), deployment.records.parked_keys) == (["p-0", "p-1", "p-2"], [])


async def test_a_suggested_command_finds_the_same_settings(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "an env").write_text("SQL='postgresql://user@host/database'\n")
    options = ("--source", "cosmos", "--env-file", str(tmp_path / "an env"))
    put(deployment, "p-1", parked=True)
    deployment.records.put(event("p-2", "p", type="other"))
    run = await deployment.run(*RELEASE_ALL, *options)

    suggested = [shell_words(words) for words in SUGGESTED.findall(run.out)]
    codes = [(await deployment.run(*words, typed="yes\n")).code for words in suggested]

    assert (len(suggested), codes, deployment.records.parked_keys) == (2, [0, 0], [])


# ids


@pytest.mark.parametrize("digits", [0, 2, 7])
@pytest.mark.parametrize("command", ["show", "release", "discard"])
async def test_an_id_that_is_too_short_names_nothing(deployment: Deployment, command: str, digits: int) -> None:
    (identifier,) = put(deployment, "a-1")

    short = await deployment.run("quarantine", command, identifier[:digits], typed="yes\n")
    assert short.code == 2
    assert "give at least its first 8 characters" in short.err
    assert deployment.records.left == ["a-1"]
    assert (await deployment.run("quarantine", command, identifier[:8], typed="yes\n")).code == 0


@pytest.mark.parametrize("digits", [0, 2, 7])
async def test_an_order_whose_id_is_too_short_is_not_withdrawn(deployment: Deployment, digits: int) -> None:
    deployment.records.pending = [order(record_id("x"), "x")]
    prefix = len("set-aside:")

    short = await deployment.run(
        "quarantine", "discard", f"set-aside:{record_id('x')}"[: prefix + digits], "--yes"
    )
    assert (short.code, len(deployment.records.pending)) == (2, 1)
    assert "give at least its first 8 characters after set-aside:" in short.err


@pytest.mark.parametrize("command", ["show", "release"])
async def test_an_order_is_no_record_and_the_answer_says_how_to_withdraw_it(
    deployment: Deployment, command: str
) -> None:
    deployment.records.pending = [order(record_id("x"), "x")]

    run = await deployment.run("quarantine", command, f"set-aside:{record_id('x')[:8]}")
    suggested = shell_words(run.err.partition("python -m relay ")[2])

    assert run.code == 2
    assert (await deployment.run(*suggested, typed="yes\n")).code == 0
    assert deployment.records.pending == []


# list and show


async def test_list_shows_records_parked_keys_and_orders(deployment: Deployment) -> None:
    put(deployment, "a-1", "p-1", "p-2")
    deployment.records.parked_keys = ["p"]
    deployment.records.pending = [order(record_id("x"), "x")]

    every = await deployment.run("quarantine", "list")
    some = await deployment.data("quarantine", "list", "--partition-key", "p", "--limit", "1")

    at = "2026-02-09T11:00:00Z"
    assert every.code == 0
    assert every.out.splitlines() == [
        "RECORD        QUARANTINED           REASON           PARTITION KEY  DOCUMENT",
        *(
            f"{record_id(name)[:12]}  {at}  message-refused  {name[0]}              {name}"
            for name in ("a-1", "p-1", "p-2")
        ),
        "",
        "PARKED KEY  SINCE                 BECAUSE OF",
        f"p           {at}  {record_id('because')[:12]}",
        "",
        "ORDER TO SET ASIDE      ORDERED               PARTITION KEY  DOCUMENT",
        f"set-aside:{record_id('x')[:12]}  {at}  a              x",
        "",
        "3 in quarantine",
    ]
    assert ([each["documentId"] for each in some["records"]], some["total"]) == (["p-1"], 2)
    assert ([each["partitionKey"] for each in some["parked"]], some["orders"]) == (["p"], [])


@pytest.mark.parametrize(("limit", "shown"), [(1, "1 of 2 in"), (2, "2 in"), (3, "2 in")])
async def test_a_list_that_is_cut_says_so(deployment: Deployment, limit: int, shown: str) -> None:
    put(deployment, "a-1", "a-2")

    run = await deployment.run("quarantine", "list", "--limit", str(limit))

    assert run.out.splitlines()[-1] == f"{shown} quarantine"


async def test_a_list_is_not_endless_unless_asked(deployment: Deployment) -> None:
    put(deployment, *(f"a-{number}" for number in range(150)))

    assert len((await deployment.data("quarantine", "list"))["records"]) == 100


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many", ""])
async def test_a_limit_is_a_whole_number_above_zero(deployment: Deployment, limit: str) -> None:
    with pytest.raises(SystemExit):
        await deployment.run("quarantine", "list", "--limit", limit)


async def test_show_gives_the_whole_document_for_people_and_for_scripts(deployment: Deployment) -> None:
    (identifier,) = put(deployment, "é-1")

    people = await deployment.run("quarantine", "show", identifier[:12])
    scripts = await deployment.data("quarantine", "show", identifier[:12])

    assert scripts["record"]["document"] == event("é-1", "é")
    assert scripts["record"]["id"] == identifier
    assert people.out.splitlines()[:2] == ["{", f'  "id": "{identifier}",']
    assert '    "partitionKey": "é",' in people.out


async def test_show_says_what_is_not_there(deployment: Deployment) -> None:
    (identifier,) = put(deployment, "a-1")
    deployment.records.gone.add("a-1")

    for name in ("ffffffff", identifier):
        run = await deployment.run("quarantine", "show", name)
        assert (run.code, run.out) == (1, f"{name} is not in quarantine\n")


# discard


async def test_discard_removes_what_was_chosen_and_only_after_a_yes(deployment: Deployment) -> None:
    ids = put(deployment, *(f"a-{number}" for number in range(12)))

    refused = await deployment.run("quarantine", "discard", "--all", typed="no\n")
    assert (refused.code, refused.out, len(deployment.records.left)) == (1, "Nothing was discarded.\n", 12)
    *shown, more, question = refused.err.splitlines()
    assert [line.split()[0] for line in shown] == [identifier[:12] for identifier in ids[:10]]
    assert shown[0].endswith("  message-refused  partition key 'a', document 'a-0'")
    assert (more, question.startswith("Discard 12 record(s) for good?")) == ("and 2 more", True)

    done = await deployment.run("quarantine", "discard", *ids[:10], "ffffffff", typed="yes\n")
    assert (done.code, done.out) == (1, "discarded 10\nffffffff is not in quarantine\n")
    assert "more" not in done.err
    assert "discarded: 10 of 10\n" in done.err
    assert deployment.records.left == ["a-10", "a-11"]


async def test_a_refused_discard_is_reported_to_scripts(deployment: Deployment) -> None:
    (identifier,) = put(deployment, "a-1")

    refused = await deployment.data("quarantine", "discard", identifier, typed="no\n")
    done = await deployment.data("quarantine", "discard", identifier, typed="yes\n")

    assert [(run["exitCode"], run["refused"]) for run in (refused, done)] == [(1, True), (0, False)]
    assert [run["discarded"] for run in (refused, done)] == [[], [identifier]]


async def test_where_nobody_can_be_asked_only_a_yes_discards(deployment: Deployment) -> None:
    put(deployment, "a-1")

    assert (await deployment.run("quarantine", "discard", "--all")).code == 2
    assert deployment.records.left == ["a-1"]
    assert (await deployment.run("quarantine", "discard", "--all", "--yes")).code == 0
    assert deployment.records.left == []


async def test_discarding_nothing_asks_nothing(deployment: Deployment) -> None:
    run = await deployment.run("quarantine", "discard", "--all", typed="")

    assert (run.code, run.out, run.err) == (0, "discarded 0\n", "")


async def test_discarding_the_last_record_of_a_parked_key_lets_it_go_on(deployment: Deployment) -> None:
    ids = put(deployment, "p-1", "q-1", "q-2", parked=True)
    deployment.records.parked_keys += ["r"]

    run = await deployment.run("quarantine", "discard", *ids[:2], "--yes")

    assert (run.code, deployment.records.parked_keys) == (0, ["q", "r"])
    assert run.out.splitlines() == [
        "discarded 2",
        "partition key 'p' is no longer parked",
        "partition key 'q' stays parked until its other records are released",
    ]


async def test_orders_are_withdrawn_by_their_ids_and_records_beside_them_discarded(deployment: Deployment) -> None:
    ids = put(deployment, "a-1", "a-2")
    named = {"ab0000001": "ab1", "ab0000002": "ab2", "cd00000000": "cd"}
    orders = [order(digits, name) for digits, name in named.items()]
    deployment.records.pending = orders[:]

    ambiguous = await deployment.run("quarantine", "discard", "set-aside:ab000000", "--yes")
    assert (ambiguous.code, deployment.records.pending) == (2, orders)
    assert ambiguous.err.splitlines() == [
        "error: 2 orders have an id that begins with 'set-aside:ab000000': give more of it",
        "  set-aside:ab0000001  2026-02-09T11:00:00Z  pending  partition key 'a', document 'ab1'",
        "  set-aside:ab0000002  2026-02-09T11:00:00Z  pending  partition key 'a', document 'ab2'",
    ]
    refused = await deployment.run("quarantine", "discard", "set-aside:cd00000000", typed="no\n")
    assert (refused.code, deployment.records.pending) == (1, orders)
    assert refused.err.splitlines() == [
        "set-aside:cd00000000  2026-02-09T11:00:00Z  pending  partition key 'a', document 'cd'",
        "Withdraw 1 order(s)? Type yes to continue: ",
    ]
    alone = await deployment.run("quarantine", "discard", "set-aside:cd00000000", "--yes")
    assert (alone.code, alone.out) == (0, "withdrew the order set-aside:cd00000000\n")
    both = await deployment.data(
        "quarantine", "discard", "set-aside:ab0000001", ids[0], "set-aside:00000000", "--yes"
    )

    assert (both["exitCode"], both["missing"]) == (1, ["set-aside:00000000"])
    assert (both["withdrawn"], both["discarded"]) == (["set-aside:ab0000001"], [ids[0]])
    assert (deployment.records.pending, deployment.records.left) == ([orders[1]], ["a-2"])


async def test_an_order_that_does_not_exist_discards_no_record(deployment: Deployment) -> None:
    put(deployment, "a-1")

    run = await deployment.data("quarantine", "discard", "set-aside:00000000", "--yes")

    assert (run["exitCode"], run["missing"], run["discarded"]) == (1, ["set-aside:00000000"], [])
    assert deployment.records.left == ["a-1"]


async def test_discarding_all_keeps_the_orders(deployment: Deployment) -> None:
    put(deployment, "a-1")
    deployment.records.pending = [order("ab1", "x")]

    assert (await deployment.run("quarantine", "discard", "--all", "--yes")).code == 0
    assert (len(deployment.records.pending), deployment.records.left) == (1, [])


# add


async def test_an_event_that_is_being_retried_is_ordered_once(deployment: Deployment) -> None:
    deployment.commit("a-1", "a")
    deployment.outbox.reach(0)

    first = await deployment.run("quarantine", "add", "a", "a-1", "--yes")
    second = await deployment.run("quarantine", "add", "a", "a-1", "--yes")

    said = ": the relay sets the event 'a-1' aside at its next attempt\n"
    assert [(run.code, run.out) for run in (first, second)] == [
        (0, "ordered" + said),
        (0, "already ordered" + said),
    ]
    assert [(each["partitionKey"], each["eventId"]) for each in deployment.records.pending] == [("a", "a-1")]


@pytest.mark.parametrize(("passed", "shown"), [(0, False), (1, True), (None, None)])
async def test_it_says_whether_the_relay_has_passed_the_event(
    deployment: Deployment, passed: int | None, shown: bool | None
) -> None:
    deployment.commit("a-1", "a")
    deployment.outbox.reach(passed)

    data = await deployment.data("quarantine", "add", "a", "a-1", "--yes")
    people = await deployment.run("quarantine", "add", "a", "a-1", typed="yes\n")

    assert (data["exitCode"], data["found"], data["passed"], data["ordered"]) == (0, True, shown, True)
    remarks = {False: 0, True: 1, None: 1}
    assert (len(people.err.splitlines()) - 1, len(people.out.splitlines())) == (remarks[shown], 1)


@pytest.mark.parametrize(("identifier", "found"), [("nowhere", False), ("contact", True)])
async def test_what_is_no_event_of_the_outbox_is_ordered_only_by_force(
    deployment: Deployment, identifier: str, found: bool
) -> None:
    deployment.commit("contact", "a", type="contact")

    refused = await deployment.data("quarantine", "add", "a", identifier, "--yes")
    assert (refused["exitCode"], refused["found"], refused["passed"]) == (1, found, None)
    assert (refused["ordered"], deployment.records.pending) == (False, [])
    shown = await deployment.run("quarantine", "add", "a", identifier, "--yes")
    assert shown.out.endswith("--force writes the order anyway.\nNothing was ordered.\n")
    forced = await deployment.data("quarantine", "add", "a", identifier, "--yes", "--force")

    assert (forced["exitCode"], forced["ordered"], len(deployment.records.pending)) == (0, True, 1)


async def test_an_order_is_given_only_after_a_yes(deployment: Deployment) -> None:
    deployment.commit("a-1", "a")

    refused = await deployment.data("quarantine", "add", "a", "a-1", typed="no\n")
    nobody = await deployment.run("quarantine", "add", "a", "a-1")

    assert (refused["exitCode"], refused["ordered"], nobody.code) == (1, False, 2)
    assert deployment.records.pending == []
