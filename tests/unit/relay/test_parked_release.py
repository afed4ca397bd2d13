"""`python -m relay quarantine release` of parked keys, and what it suggests where a key stays parked."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.command_line import python
from tests.support.operators import shell_words
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.commands import Deployment, record_id
from tests.unit.relay.shelf import BUSY, REFUSED, RELEASE_ALL, event, put


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


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

    async with asyncio.timeout(WATCHDOG_S):
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
