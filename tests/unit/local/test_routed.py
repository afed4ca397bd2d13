"""The page and `send` read relay.toml as the relay of the stack does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from local.console.serving import backend_of_page, topic_of
from local.sending.event import Event
from local.sending.routed import STACK_APP, event_type, streams_of, why_ignored
from local.stack.options import StackOptions
from local.stack.parts import Part
from local.stack.supervisor import Stack

SETTINGS = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true",
}


def stack_of(app: Path, text: str) -> Stack:
    (app / "relay.toml").write_text(text)
    stack = Stack(StackOptions(app=app, logs=app / "logs"))
    stack.settings = dict(SETTINGS)
    stack.servicebus = cast(Part, SimpleNamespace(details={"admin_port": 1}))
    return stack


TYPES = '[outboxes.default]\ntypes = ["order", "invoice"]\n'


async def test_the_page_shows_the_events_and_the_destination_that_the_rules_name(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, TYPES + '[destinations.default]\ntopic = "orders"\n')

    settings, topic = backend_of_page(stack).settings, topic_of(stack)

    assert settings.selection.types == ("order", "invoice")
    assert (settings.servicebus_topic, topic.entity) == ("orders", "orders")
    await topic.close()


def test_send_writes_an_event_that_the_rules_take(tmp_path: Path) -> None:
    stack_of(tmp_path, TYPES)
    streams = streams_of({**SETTINGS, STACK_APP: str(tmp_path)})

    assert event_type(streams) == "order"
    assert why_ignored(Event("k", "Foo", {}, event_type(streams)), streams) is None
    assert why_ignored(Event("k", "Foo", {}), streams) == "it is not so that the type is 'order' or 'invoice'"


@pytest.mark.parametrize(("action", "why"), [("Paid", None), ("Foo", "no rule gives it to a destination")])
def test_send_says_when_no_rule_takes_the_event(tmp_path: Path, action: str, why: str | None) -> None:
    stack_of(tmp_path, 'unrouted = "ignore"\n[[routes]]\nwhen = { action = "Paid" }\nto = ["default"]\n')
    streams = streams_of({**SETTINGS, STACK_APP: str(tmp_path)})

    assert why_ignored(Event("k", action, {}), streams) == why
