"""A safeguard without which events are held up, and what happens without it; test_chaos.py has the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.app import copy_app
from tests.support.broker import answer_oversized, inject, topic_counts
from tests.support.outbox import event
from tests.support.stacks import running_stack
from tests.support.subscriber import Subscriber


@pytest.mark.parametrize(
    ("without", "arrives"),
    [((), True), (("without_discarding_senders",), False)],
    ids=["with a fresh link after a failure events arrive", "without it they never do"],
)
async def test_a_link_on_which_a_send_has_failed_is_given_up(
    tmp_path: Path, without: tuple[str, ...], arrives: bool
) -> None:
    app = copy_app(tmp_path / "app", *without)
    settings = {"RELAY_SENDERS": "1", "RELAY_SEND_TIMEOUT_S": "1", "RELAY_ATTEMPT_TIMEOUT_S": "2"}
    async with running_stack(tmp_path / "logs", app=app, **settings) as running:
        data = running.container("data")
        await data.create_item(event("opens the link", "a"))
        subscriber = Subscriber(running.stack.settings["SERVICEBUS"])
        await subscriber.receive(1)
        # The limit is lower than the open link knows, and is announced by a detach alone.
        await answer_oversized(running.admin_port, "detached-without-disposition")
        await inject(running.admin_port, kind="shrink-limit", entity="domain-events", bytes=4000)

        events = [event(f"{number}", "a", text="x" * 2500) | {"order": number} for number in range(3)]
        await data.execute_item_batch([("create", (each,)) for each in events], partition_key="a")

        if arrives:
            await subscriber.receive(4)
        else:
            await running.until_function(lambda status: status["failures"] >= 2)
        topic = await topic_counts(running.admin_port)
        # After a link that ended, an accepted event may be repeated to see whether the service accepts.
        assert (topic["accepted"] - topic["duplicates_dropped"] == 4) is arrives
