"""The findings of `check` about parked keys, blocked keys and events that wait; its commands put each right."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.cli.blocked_keys import holdups
from relay.backends.findings import Finding, Level
from relay.config.settings import Settings
from relay.core.errors import StoreError
from relay.core.holds import parked_marker_item
from tests.support.operators import shell_words
from tests.unit.relay.commands import ENVIRONMENT, Deployment

BLOCK = "block"


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    deployment = Deployment(monkeypatch)
    deployment.outbox.reach(0)
    return deployment


async def found(level: Level, policy: str = "skip", largest: int | None = None) -> list[Finding]:
    settings = Settings.from_environment(ENVIRONMENT | {"RELAY_ON_POISON": policy})
    findings = await holdups(open_backend(settings), largest)
    return [finding for finding in findings if finding.level is level]


def suggested(finding: Finding) -> list[list[str]]:
    """The words of the commands of a remedy."""
    commands = re.findall(r"python -m relay ([^;\n]+)", finding.remedy or "")
    return [shell_words(each) for each in commands]


def commit(deployment: Deployment, identifier: str, key: str = "k", *, ago_s: float = 0, **changes: Any) -> None:
    deployment.commit(identifier, key, _ts=int(time.time() - ago_s), **changes)


# parked keys


async def test_where_nothing_is_held_up_it_says_so(deployment: Deployment) -> None:
    commit(deployment, "a", ago_s=200)

    assert [finding.what for finding in await found(Level.OK)] == [
        "no partition key is parked or known to be blocked",
        "no event of COSMOS_CONTAINER 'data' waits for longer than PT5M to be published",
    ]
    assert await found(Level.ERROR) == await found(Level.WARNING) == []


async def test_a_parked_key_is_named_with_its_document_and_its_commands_unpark_it(deployment: Deployment) -> None:
    put, key = deployment.records.put, "it's a k"
    identifier = put({"id": "p-1", "partitionKey": key, "type": "domainEvent", "data": 7}, "data-not-object")
    put({"id": "p-2", "partitionKey": key, "type": "domainEvent", "data": {"action": "A"}}, "key-parked")
    deployment.records.parked_keys = [key]
    deployment.records._memory.take("parked", key)
    deployment.records._memory.put(parked_marker_item(key, identifier) | {"since": "2026-02-09T11:00:00.1"})

    (finding,) = await found(Level.ERROR)

    assert finding.what == (
        f"partition key {key!r} is parked since 2026-02-09T11:00:00Z because of document 'p-1' (record "
        f"{identifier[:12]}, data-not-object: said): 2 record(s) of it are in quarantine, and its new events "
        "follow"
    )
    runs = [await deployment.run(*words, typed="yes\n") for words in suggested(finding)]
    assert ([run.code for run in runs], deployment.topic.ids(key)) == ([0, 0], ["p-2"])
    assert await found(Level.ERROR) == []


async def test_a_parked_key_whose_record_is_gone_is_released_by_its_command(deployment: Deployment) -> None:
    deployment.records.put({"id": "p-2", "partitionKey": "P", "type": "domainEvent", "data": {"action": "A"}})
    deployment.records.parked_keys = ["P"]

    (finding,) = await found(Level.ERROR)
    (command,) = suggested(finding)

    assert "The record that parked it is gone" in finding.what
    assert (await deployment.run(*command)).code == 0
    assert await found(Level.ERROR) == []


async def test_many_parked_keys_are_counted(deployment: Deployment) -> None:
    deployment.records.parked_keys = [f"p{number:02}" for number in range(12)]

    *named, more = await found(Level.ERROR)

    assert (len(named), more.what) == (10, "2 more partition key(s) are parked")
    assert [(await deployment.run(*words)).code for words in suggested(more)] == [0]


# blocked keys


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": 7}, "data-not-object: data is a number, not an object"),
        ({"data": {"action": "A" * 300}}, "message-too-large: The message has"),
    ],
)
async def test_a_blocked_key_is_named_with_its_document_and_its_command_sets_it_aside(
    deployment: Deployment, changes: dict[str, Any], says: str
) -> None:
    commit(deployment, "a", "other")
    commit(deployment, "b 1", "it's", **changes)
    commit(deployment, "c", "it's")

    (finding,) = await found(Level.ERROR, BLOCK, 400)

    assert finding.what.startswith(
        f"partition key \"it's\" is blocked by document 'b 1', which can never be published ({says}"
    )
    assert "of partition '0', nothing behind its page is published" in finding.what
    (command,) = suggested(finding)
    run = await deployment.run(*command, "--yes")
    assert (run.code, [each["eventId"] for each in deployment.records.pending]) == (0, ["b 1"])
    assert await found(Level.ERROR, BLOCK, 400) == []


@pytest.mark.parametrize("policy", ["skip", "park"])
async def test_only_the_policy_block_blocks(deployment: Deployment, policy: str) -> None:
    commit(deployment, "b", data=7)

    assert await found(Level.ERROR, policy) == []


async def test_an_event_is_not_called_too_large_where_the_limit_is_unknown(deployment: Deployment) -> None:
    commit(deployment, "b", data={"action": "A" * 300})

    assert await found(Level.ERROR, BLOCK) == []


async def test_what_the_relay_has_passed_blocks_nothing(deployment: Deployment) -> None:
    commit(deployment, "b", data=7)
    deployment.outbox.pass_all()

    assert await found(Level.ERROR, BLOCK) == []


async def test_many_blocked_keys_are_counted(deployment: Deployment) -> None:
    for number in range(12):
        commit(deployment, "b", f"k{number}", data=7)

    *named, more = await found(Level.ERROR, BLOCK)

    assert (len(named), more.what) == (10, "2 more partition key(s) of partition '0' are blocked")


# events that wait


async def test_the_first_event_that_waits_for_long_is_named(deployment: Deployment) -> None:
    commit(deployment, "a", ago_s=600)
    commit(deployment, "b", ago_s=500)

    (finding,) = await found(Level.WARNING)

    assert "the first of partition '0', 'a' of the partition key 'k', for PT10M" in finding.what
    assert not [each for each in await found(Level.OK) if "waits for longer" in each.what]


async def test_without_a_position_nothing_is_said_of_what_waits(deployment: Deployment) -> None:
    deployment.outbox.reach(None)

    assert [finding.what for finding in await found(Level.OK)] == [
        "no partition key is parked or known to be blocked"
    ]


@pytest.mark.parametrize("of_quarantine", [True, False])
async def test_what_cannot_be_read_is_unknown(deployment: Deployment, of_quarantine: bool) -> None:
    if of_quarantine:
        deployment.records._memory.answers = [StoreError("refused")]
    else:
        deployment.outbox.fails = "refused"

    (finding,) = await found(Level.UNKNOWN)

    assert finding.what == "whether a partition key is parked or blocked could not be read: refused"
    assert deployment.outbox.closed is not of_quarantine
