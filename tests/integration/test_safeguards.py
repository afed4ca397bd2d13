"""The two settings of the trigger without which events are lost or altered, and what happens without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.support.app import copy_app, without_date_setting, without_retry_policy
from tests.support.broker import set_topic_status
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
