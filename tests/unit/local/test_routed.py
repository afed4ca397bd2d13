"""The page and `send` read relay.toml as the relay of the stack does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from local.console.serving import topic_of
from local.sending.event import Event, WordError
from local.sending.routed import STACK_APP, Outbox, streams_of
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

    [settings] = stack.streams
    topic = topic_of(stack, settings)

    assert settings.selection.types == ("order", "invoice")
    assert (settings.servicebus.entity, topic.entity) == ("orders", "orders")
    await topic.close()


def sent(app: Path, event: Event, outbox: str | None = None) -> tuple[dict[str, Any], str | None]:
    """The document that is stored of an event, and why it is ignored."""
    found = Outbox.of(streams_of({**SETTINGS, STACK_APP: str(app)}), outbox)
    made = found.made(event, 7)
    return made.stored, found.why_ignored(made.document)


def test_send_writes_an_event_that_the_rules_take(tmp_path: Path) -> None:
    stack_of(tmp_path, TYPES)
    made, why = sent(tmp_path, Event("k", "Foo", {}))

    assert (made["type"], why) == ("order", None)
    assert sent(tmp_path, Event("k", "Foo", {}, "paid"))[1] == "it is not so that the type is 'order' or 'invoice'"


@pytest.mark.parametrize(("action", "why"), [("Paid", None), ("Foo", "no rule gives it to a destination")])
def test_send_says_when_no_rule_takes_the_event(tmp_path: Path, action: str, why: str | None) -> None:
    stack_of(tmp_path, 'unrouted = "ignore"\n[[routes]]\nwhen = { action = "Paid" }\nto = ["default"]\n')
    assert sent(tmp_path, Event("k", action, {}))[1] == why


RULES = """
[outboxes.shop]
container = "shop"
layout = "cloudevents"
events = { "/specversion" = "1.0", "/data/region" = ["eu", "us"] }
fields.trace = "/traceparent"

[[routes]]
outbox = "shop"
when = { action = "Paid", "/data/total" = 0 }
to = ["audit"]

[[routes]]
outbox = "shop"
when = { key = { prefix = "vip-" }, "/data/name" = { prefix = "J" } }
to = ["default"]

[outboxes.default]
types = ["order", "invoice"]

[[routes]]
outbox = "default"
when = { type = "invoice" }
to = ["audit"]

[destinations.audit]
queue = "audit"
"""


@pytest.mark.parametrize(
    ("event", "outbox", "stored", "why"),
    [
        (Event("k", "Made", {}), "default", {"type": "invoice", "partitionKey": "k", "sequence": 7}, None),
        (Event("k", "Made", {}, "order"), "default", {"type": "order"}, "no rule gives it to a destination"),
        (
            Event("vip-1", "Made", {"region": "us", "name": "Jane"}),
            "shop",
            {"specversion": "1.0", "type": "Made", "partitionkey": "vip-1", "source": "sent", "sequence": 7},
            None,
        ),
        (
            Event("k", "Paid", {"n": [1]}),
            "shop",
            {"specversion": "1.0", "data": {"total": 0, "region": "eu"}},
            None,
        ),
        # Its own total and key stay.
        (
            Event("k", "Paid", {"total": 5}),
            "shop",
            {"specversion": "1.0", "data": {"total": 5, "region": "eu"}},
            "no rule gives it to a destination",
        ),
    ],
)
def test_send_writes_the_layout_and_what_a_rule_asks_for(
    tmp_path: Path, event: Event, outbox: str, stored: dict[str, Any], why: str | None
) -> None:
    stack_of(tmp_path, RULES)

    made, found = sent(tmp_path, event, outbox)

    data = stored.pop("data", {})
    assert found == why
    assert {name: made[name] for name in stored} == stored
    assert made["id"] == event.id
    assert made["data"].items() >= {**event.data, **data}.items()


def test_an_outbox_that_relay_toml_does_not_have_is_refused_with_those_it_has(tmp_path: Path) -> None:
    stack_of(tmp_path, RULES)

    with pytest.raises(WordError, match=r"^--outbox other: there is no such outbox; there are shop, default\.$"):
        sent(tmp_path, Event("k", "A", {}), "other")
