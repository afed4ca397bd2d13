"""`python -m relay check --scan`: the documents in front of which a lease stops, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.leases import TriggerLeases
from tests.support.operators import Run, relay_command
from tests.support.outbox import event, events


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"RELAY_DUPLICATE_WINDOW_S": "300"}


def deep(identifier: str, levels: int, **more: Any) -> dict[str, Any]:
    """An event document with this many levels."""
    value: list[Any] = []
    for _ in range(levels - 3):
        value = [value]
    return {**event(identifier, "k", deep=value), **more}


async def scan(environment: dict[str, str]) -> Run:
    return await relay_command(
        environment, "check", "--scan", "--min-window", "PT5M", "--min-ttl", "PT1H", "--json"
    )


async def test_the_document_a_lease_stops_at_is_named_with_its_remedy(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await trigger.data.create_item(event("early", "k"))
    await trigger.pass_all()
    for document in (deep("sound", 63), deep("blocking", 64), event("behind", "k")):
        await trigger.data.create_item(document)

    run = await scan(environment)

    assert (run.code, run.json["scanned"]) == (1, 3)
    (obstacle,) = run.json["obstacles"]
    assert (obstacle["id"], obstacle["partitionKey"], obstacle["depth"]) == ("blocking", "k", 64)
    assert obstacle["lsn"] > 0
    assert obstacle["lease"] in {lease.id for lease in await (await trigger.store()).all()}
    (finding,) = [each for each in run.json["findings"] if each["level"] == "error"]
    assert "document 'blocking' with the partition key 'k'" in finding["what"]
    assert "nested 64 levels deep" in finding["what"]
    assert finding["remedy"].startswith("Delete it from the container 'data'")


async def test_a_document_in_the_next_page_is_named_without_a_scan(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await trigger.pass_all()
    for document in (event("a", "k"), deep("blocking", 64), event("b", "k") | {"data": 7}):
        await trigger.data.create_item(document)

    run = await relay_command(
        environment | {"RELAY_ON_POISON": "block"}, "check", "--min-window", "PT5M", "--min-ttl", "PT1H", "--json"
    )

    # The host delivers nothing of the page, so that nothing else in it blocks.
    [finding] = [each for each in run.json["findings"] if each["level"] == "error"]
    assert (run.code, "document 'blocking' with the partition key 'k'" in finding["what"]) == (1, True)
    assert finding["remedy"].startswith("Delete it from the container 'data'")


async def test_a_business_document_is_found_too_and_so_is_one_before_the_first_checkpoint(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await trigger.store()
    await trigger.data.create_item(deep("contact", 100, type="contact"))

    run = await scan(environment)

    assert [(each["id"], each["type"]) for each in run.json["obstacles"]] == [("contact", "contact")]


async def test_one_id_in_two_keys_is_reported_as_a_topic_may_take_them_for_one(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await trigger.pass_all()
    for document in (event("a", "k"), event("a", "other"), event("b", "k")):
        await trigger.data.create_item(document)

    run = await scan(environment)

    (finding,) = [each for each in run.json["findings"] if "the same message id" in each["what"]]
    assert finding["level"] == "warning"
    assert "partition keys 'k' and 'other'" in finding["what"] or "keys 'other' and 'k'" in finding["what"]
    assert "message id, 'a'" in finding["what"]


async def test_what_a_lease_has_passed_is_not_read_again(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await trigger.data.create_item(deep("passed", 64))
    await trigger.pass_all()

    run = await scan(environment)

    assert (run.code, run.json["scanned"], run.json["obstacles"]) == (0, 0, [])


async def test_a_long_backlog_is_read_to_its_end(environment: dict[str, str], trigger: TriggerLeases) -> None:
    await trigger.pass_all()
    for key in ("a", "b", "k"):
        for start in range(0, 150, 50):
            batch = events(key, 150)[start : start + 50]
            await trigger.data.execute_item_batch([("create", (each,)) for each in batch], partition_key=key)
    await trigger.data.create_item(deep("last", 64))

    run = await scan(environment)

    assert (run.json["scanned"], [each["id"] for each in run.json["obstacles"]]) == (451, ["last"])


@pytest.mark.parametrize(
    ("policy", "fate"),
    [
        ("skip", "would be quarantined: "),
        ("park", "would be quarantined, and park its partition key: "),
        ("block", "would block its partition key: "),
    ],
)
async def test_an_event_that_cannot_become_a_message_is_named_as_the_relay_will_judge_it(
    environment: dict[str, str], trigger: TriggerLeases, policy: str, fate: str
) -> None:
    await trigger.data.create_item(event("passed", "k") | {"data": 7})
    await trigger.pass_all()
    await trigger.data.create_item(event("sound", "k"))
    await trigger.data.create_item(event("b", "k") | {"data": 7})
    await trigger.data.create_item(event("c", "k") | {"data": 7, "type": "contact"})
    await trigger.data.create_item(event("d", "k" * 129))
    await trigger.data.create_item(deep("deep", 64) | {"id": "x" * 129})

    run = await scan(environment | {"RELAY_ON_POISON": policy})

    assert (run.code, run.json["scanned"], len(run.json["obstacles"])) == (1, 5, 1)
    assert {(each["id"], each["reason"]) for each in run.json["rejected"]} == {
        ("b", "data-not-object"),
        ("d", "partition-key-too-long"),
    }
    leases = {lease.id for lease in await (await trigger.store()).all()}
    assert {each["lease"] for each in run.json["rejected"]} <= leases
    (finding,) = [each for each in run.json["findings"] if each["what"].startswith("event 'b' with the")]
    assert f"{fate}data-not-object: data is a number, not an object" in finding["what"]
    assert finding["remedy"].startswith("Replace it in the container 'data' before the relay comes to it.")
    command = "quarantine add k b" if policy == "block" else "quarantine discard ID"
    assert f"python -m relay {command}" in finding["remedy"]


async def test_without_leases_it_is_unknown(environment: dict[str, str]) -> None:
    run = await scan(environment)

    (finding,) = [each for each in run.json["findings"] if each["level"] == "unknown"]
    assert (run.code, "has no leases for the outbox container" in finding["what"]) == (1, True)
