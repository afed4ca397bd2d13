"""The page of a stack without its stack: where the form that sends events is open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp.test_utils import TestClient, TestServer

from local.console.actions import TEMPLATES
from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.model import Flow, Snapshot
from outbox_relay.operator.console.ports import Extension
from outbox_relay.operator.console.server import loopback
from tests.support.console_view import NOON, InMemoryView, busy, history

FRESH = replace(busy(), flow=Flow(NOON, committed=0))
UNREAD = Snapshot(0, NOON, Flow(NOON))


@pytest.mark.parametrize(
    ("snapshot", "path", "opened"),
    [
        (FRESH, "/", True),
        (UNREAD, "/", True),
        (FRESH, "/key?key=contact-1", False),
        (busy(), "/", False),
        (busy(), "/key?key=contact-1", False),
    ],
)
async def test_the_form_is_open_only_while_nothing_is_committed(
    snapshot: Snapshot, path: str, opened: bool
) -> None:
    app = application(InMemoryView(snapshot, [history()]), loopback, extensions=[Extension("local", TEMPLATES)])
    async with TestClient(TestServer(app)) as client:
        page = await (await client.get(path)).text()

    before, _, after = page.partition('<summary><h2 id="local-title">')
    assert before.rstrip().endswith("<details open>" if opened else "<details>")
    form, _, outside = after.partition("</details>")
    assert ("Send an event" in form, "local-faults" in form) == (True, True)
    # Other sections answer here too, whether the form is open or not.
    assert 'id="local-said"' in outside
