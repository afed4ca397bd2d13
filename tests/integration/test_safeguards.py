"""Safeguards without which events are lost, altered or held up, and what happens without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.support.app import (
    copy_app,
    without_date_setting,
    without_discarding_senders,
    without_retry_policy,
)
from tests.support.broker import answer_oversized, inject, set_topic_status, topic_counts
from tests.support.outbox import event
from tests.support.stacks import RunningStack, running_stack
from tests.support.subscriber import Subscriber, body

DATES = {
    "offset": "2021-09-22T11:07:37.3022907+02:00",
    "zeros": "2019-01-01T00:00:01.0000000Z",
    "utc": "2026-02-09T09:37:37Z",
    "local": "2026-02-09T09:37:37",
}


def as_is(app: Path) -> Path:
    return app


async def ride_through_an_outage(running: RunningStack) -> list[str]:
    """Write an event while the topic is disabled, and one after; the ids that arrive."""
    await set_topic_status(running.admin_port, "SendDisabled")
    await running.container("data").create_item(event("during", "a"))
    await running.until_function(lambda status: status["failures"] >= 1)
    await set_topic_status(running.admin_port, "Active")
    await running.container("data").create_item(event("after", "a"))
    subscriber = Subscriber(running.stack.settings["SERVICEBUS"])
    while "after" not in subscriber.ids().get("a", []):
        await subscriber.receive(subscriber.count + 1)
    return subscriber.ids()["a"]


@pytest.mark.parametrize(
    ("change", "arrived"),
    [(as_is, ["during", "after"]), (without_retry_policy, ["after"])],
    ids=["with the retry policy nothing is lost", "without it a failed batch is lost"],
)
async def test_the_retry_policy_carries_events_through_an_outage(
    tmp_path: Path, change: Callable[[Path], Path], arrived: list[str]
) -> None:
    app = change(copy_app(tmp_path / "app"))
    async with running_stack(tmp_path / "logs", app=app, RELAY_SEND_TIMEOUT_S="5") as running:
        assert await ride_through_an_outage(running) == arrived


@pytest.mark.parametrize(
    ("change", "equal"),
    [(as_is, True), (without_date_setting, False)],
    ids=["with the date setting nothing is altered", "without it dates are rewritten"],
)
async def test_the_date_setting_keeps_the_host_from_rewriting_dates(
    tmp_path: Path, change: Callable[[Path], Path], equal: bool
) -> None:
    app = change(copy_app(tmp_path / "app"))
    async with running_stack(tmp_path / "logs", app=app) as running:
        await running.container("data").create_item(event("1", "a", **DATES))
        subscriber = Subscriber(running.stack.settings["SERVICEBUS"])
        await subscriber.receive(1)

    told = orjson.loads(body(subscriber.messages["a"][0]))

    assert ({name: told[name] for name in DATES} == DATES) is equal


@pytest.mark.parametrize(
    ("change", "arrives"),
    [(as_is, True), (without_discarding_senders, False)],
    ids=["with a fresh link after a failure events arrive", "without it they never do"],
)
async def test_a_link_on_which_a_send_has_failed_is_given_up(
    tmp_path: Path, change: Callable[[Path], Path], arrives: bool
) -> None:
    app = change(copy_app(tmp_path / "app"))
    async with running_stack(tmp_path / "logs", app=app, RELAY_SENDERS="1") as running:
        data = running.container("data")
        await data.create_item(event("opens the link", "a"))
        subscriber = Subscriber(running.stack.settings["SERVICEBUS"])
        await subscriber.receive(1)
        # The limit is lower than the open link was told, and says so by a detach alone.
        await answer_oversized(running.admin_port, "detached-without-disposition")
        await inject(running.admin_port, kind="shrink-limit", entity="domain-events", bytes=4000)

        events = [event(f"{number}", "a", text="x" * 2500) | {"order": number} for number in range(3)]
        await data.execute_item_batch([("create", (each,)) for each in events], partition_key="a")

        if arrives:
            await subscriber.receive(4)
        else:
            await running.until_function(lambda status: status["failures"] >= 3)
        assert ((await topic_counts(running.admin_port))["accepted"] == 4) is arrives
