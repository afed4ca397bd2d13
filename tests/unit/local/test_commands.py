"""The events of `python -m local send`, and the lines of `watch`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from local.sending.event import Event, WordError, parse_fields
from local.stack.lock import READY
from local.watching import command
from local.watching.changes import Change, Changes, staleness
from local.watching.command import Followed, Watching, _events
from outbox_relay.operator.console import formatting
from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.history import NO_START
from outbox_relay.operator.console.model import Flow, Snapshot, Stage, Tracked
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from outbox_relay.operator.console.server import loopback
from outbox_relay.operator.console.stream import encoded
from outbox_relay.operator.console.timeline import steps
from outbox_relay.outbox import InvalidDocument
from tests.support.console_deployment import Deployment
from tests.support.console_view import NOON, committed
from tests.support.watchdog import WATCHDOG_S


def test_fields_are_strings_or_json_and_take_precedence_over_the_data() -> None:
    fields = parse_fields(["name=Jane=Doe", "age:=3", "tags:=[1]", "empty="], '{"name": "John", "city": "Bern"}')

    assert fields == {"name": "Jane=Doe", "city": "Bern", "age": 3, "tags": [1], "empty": ""}


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["name"], None, "'name' is not a field: write name=value"),
        (["=x"], None, "'=x' is not a field"),
        ([":=1"], None, "':=1' is not a field"),
        (["age:=old"], None, "age:=old: not JSON"),
        ([], "[1]", "--data must be a JSON object"),
        ([], "{", "--data: not JSON"),
    ],
)
def test_what_is_no_field_is_refused_with_the_remedy(words: list[str], text: str | None, message: str) -> None:
    with pytest.raises(WordError, match=message.replace("[", r"\[")):
        parse_fields(words, text)


def test_the_document_is_that_of_the_message_contract() -> None:
    document = Event("k", "Renamed", {"name": "Jane"}, id="e", created_at="2026-02-02T02:40:00+00:00").document(3)

    assert document == {
        "id": "e",
        "partitionKey": "k",
        "type": "domainEvent",
        "data": {"name": "Jane", "action": "Renamed", "createdAt": "2026-02-02T02:40:00+00:00"},
        "order": 0,
        "sequence": 3,
        "ttl": 864_000,
    }


def test_a_document_that_the_host_cannot_hand_over_is_not_written() -> None:
    deep: dict[str, object] = {}
    for _ in range(70):
        deep = {"a": deep}

    with pytest.raises(InvalidDocument, match="nested too deeply"):
        Event("k", "Renamed", deep).document(1)


# What `python -m local watch` says of an event


COSMOS = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5"
SERVICEBUS = "Endpoint=sb://127.0.0.1;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true"
_RAISED = 1_770_000_000.25
EVENT = {
    "partition_key": "contact-1",
    "action": "ContactRenamed",
    "sequence": 7,
    "committed_at": 1_770_000_000,
    "created_at": "2026-02-02T02:40:00.250000+00:00",
}


def tracked(stage: str = "committed", **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "published_at": None,
        "quarantined": None,
        "removed": None,
        "deliveries": [],
        "not_measured": None,
    }
    return {"id": "e", "stage": stage, "event": EVENT, **empty, **more}


def delivery(arrival: str = "waiting", at: float | None = None, **more: Any) -> dict[str, Any]:
    accepted_at = _RAISED + 0.5
    return {
        "subscription": "all",
        "arrival": arrival,
        "accepted_at": accepted_at,
        "at": at,
        "reason": None,
        "again": False,
        **more,
    }


def told(changes: Changes, *states: dict[str, Any]) -> list[tuple[str, float | None]]:
    found: list[Change] = [change for state in states for change in changes.of(state)]
    return [(each.what, each.after_s) for each in found]


def test_each_stage_is_told_once_with_the_time_since_the_event_was_raised() -> None:
    at_subscription = tracked("published", published_at=_RAISED + 0.5, deliveries=[delivery()])
    delivered = tracked("published", published_at=_RAISED + 0.5, deliveries=[delivery("delivered", _RAISED + 2)])

    assert told(Changes(), tracked(), tracked(), at_subscription, delivered, delivered) == [
        ("committed", 0.0),
        ("accepted", 0.5),
        ("at", 0.5),
        ("delivered", 2.0),
    ]


def test_what_a_subscription_has_was_accepted_even_before_the_checkpoint_says_so() -> None:
    assert [what for what, _ in told(Changes(), tracked("committed", deliveries=[delivery()]))] == [
        "committed",
        "accepted",
        "at",
    ]


def test_watch_says_why_there_is_no_time_even_before_the_checkpoint() -> None:
    unknown = {**tracked("committed", deliveries=[delivery()]), "event": {**EVENT, "created_at": None}}

    changes = {change.what: change for change in Changes().of(unknown)}

    assert (changes["accepted"].after_s, changes["accepted"].not_measured) == (None, NO_START)
    assert changes["at"].not_measured is None


def test_an_event_in_quarantine_is_told_with_its_reason() -> None:
    record = {"partition_key": "contact-1", "quarantined_at": "2026-02-02T02:40:01Z", "reason": "id-too-long"}
    *_, change = Changes().of(tracked("quarantined", quarantined=record))

    assert change.as_line().endswith("contact-1 #7  ContactRenamed  quarantined: id-too-long, after 750 ms  e")


def test_a_record_whose_event_is_gone_still_has_its_key() -> None:
    record = {"partition_key": "k", "quarantined_at": "2026-02-02T02:40:01Z", "reason": "message-refused"}
    [change] = Changes().of(tracked("quarantined", event=None, quarantined=record))

    assert (change.partition_key, change.what, change.after_s) == ("k", "quarantined", None)


def test_a_dead_letter_is_told_with_subscription_and_reason() -> None:
    dead = delivery("dead-lettered", _RAISED + 3, reason="MaxDeliveryCountExceeded")
    *_, change = Changes().of(tracked("published", deliveries=[dead]))

    words = "dead-lettered at subscription all: MaxDeliveryCountExceeded, after 3.0 s"
    assert words in change.as_line()
    assert '"what": "dead-lettered", "subscription": "all"' in change.as_json()


def of_key(key: str, **more: Any) -> dict[str, Any]:
    return {**tracked("published", **more), "id": f"event of {key}", "event": {**EVENT, "partition_key": key}}


async def stream(*messages: tuple[str, Any]) -> AsyncIterator[tuple[str, Any]]:
    for each in messages:
        yield each


def test_what_waits_in_a_queue_is_not_at_a_subscription() -> None:
    *_, change = Changes().of(tracked("published", deliveries=[delivery(subscription="audit")]))

    assert "  b → queue 'audit'  contact-1 #7  ContactRenamed  at queue audit, after" in change.as_line(
        "b → queue 'audit'", of_queue=True
    )


async def test_an_event_of_two_streams_counts_in_each(capsys: pytest.CaptureFixture[str]) -> None:
    watching = Watching(None, 3, as_json=True)
    stale: tuple[str, Any] = ("known", {"at": None, "stale": True, "problems": []})

    await watching.follow(stream(("now", {}), stale, ("", of_key("k"))), Followed(name="a"))
    await watching.follow(
        stream(("", of_key("k")), ("", of_key("other")), ("", of_key("never"))), Followed(name="b")
    )
    await watching.follow(stream(("", of_key("late"))), Followed(name="c"))
    printed = capsys.readouterr()

    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [(each["stream"], each["partitionKey"], each["earlier"]) for each in found[::2]] == [
        ("a", "k", False),
        ("b", "k", True),
        ("b", "other", True),
    ]
    assert printed.err == "a: No further events are known yet.\n"


async def test_watch_is_done_with_an_event_that_expired(capsys: pytest.CaptureFixture[str]) -> None:
    event = committed(1, expires_at=NOON + 5)
    state = json.loads(encoded(Tracked(event.id, Stage.EXPIRED, event)))

    await Watching(None, 1, as_json=True).follow(stream(("", state), ("", {**state, "id": "never read"})))

    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["what"], each["id"]) for each in told] == [("committed", event.id), ("expired", event.id)]
    assert told[1]["latencyMs"] is None


async def test_watch_of_a_key_is_done_with_an_event_that_the_outbox_has_deleted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    relayed = Deployment()
    relayed.outbox.commit("a", expires_at=relayed.now + 5)
    await relayed.observer.look()
    relayed.now += 6
    relayed.outbox.deleted.add("a")
    relayed.outbox.pass_all()
    await relayed.observer.look()

    async with (
        TestServer(application(relayed.observer, loopback)) as server,
        asyncio.timeout(WATCHDOG_S),
        aclosing(_events(str(server.make_url("/events.json?key=k")))) as events,
    ):
        await Watching("k", 1, as_json=True).follow(events)

    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["what"], each["id"]) for each in told] == [("committed", "a"), ("expired", "a")]


async def test_watch_says_which_lines_are_old(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = of_key("old"), of_key("new")

    await Watching(None, 2, as_json=False).follow(stream(("", old), ("now", {}), ("", new), ("", of_key("never"))))
    lines = capsys.readouterr()
    await Watching(None, 2, as_json=True).follow(stream(("", old), ("now", {}), ("", new)))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert lines.err == "So far:\nFrom now on:\n"
    assert [line.split()[1] for line in lines.out.splitlines()] == ["old", "old", "new", "new"]
    assert [(each["partitionKey"], each["earlier"]) for each in found] == [
        ("old", True),
        ("old", True),
        ("new", False),
        ("new", False),
    ]


async def test_without_old_lines_watch_begins_with_now(capsys: pytest.CaptureFixture[str]) -> None:
    await Watching(None, 1, as_json=False).follow(stream(("now", {}), ("", of_key("new"))))

    assert capsys.readouterr().err == "From now on:\n"


@pytest.mark.parametrize(
    ("key", "count", "text"),
    [
        (None, None, "After 3 s the relay is done with 1 event."),
        ("k", 2, "After 3 s the relay is done with 1 event of k, not yet with 2."),
    ],
)
async def test_watch_says_how_far_the_relay_is_when_its_time_is_up(
    key: str | None, count: int | None, text: str
) -> None:
    watching = Watching(key, count, as_json=True)
    await watching.follow(stream(("", of_key("k")), ("", {**of_key("k"), "id": "waits", "stage": "committed"})))

    assert watching.progress(3.0) == text


@pytest.mark.parametrize(
    ("at", "problems", "line"),
    [
        (None, [], "No further events are known yet."),
        (
            1_770_000_000.5,
            [{"what": "outbox", "text": "it is away:\nCheck COSMOS."}],
            f"No further events are known since {datetime.fromtimestamp(1_770_000_000):%H:%M:%S} "
            "(outbox: it is away: Check COSMOS.).",
        ),
    ],
)
def test_watch_says_when_further_events_are_not_known(
    at: float | None, problems: list[dict[str, str]], line: str
) -> None:
    assert staleness({"at": at, "stale": True, "problems": problems}) == line
    assert staleness({"at": 5.0, "stale": False, "problems": []}) == "The events are known again."


@pytest.mark.parametrize(
    ("committed_at", "created_at", "took"),
    [
        (1_770_000_000, "2026-02-02T02:40:00.288000+00:00", "489\u202fms"),  # Cosmos DB: a whole second
        (1_770_000_000, None, "\N{EN DASH}"),
        (1_770_000_000, "2026-02-02T02:39:00+00:00", "\N{EN DASH}"),
        (1_770_000_000.5, "2026-02-02T02:39:00+00:00", "277\u202fms"),  # SQL: the database's clock
    ],
)
def test_the_page_and_watch_count_from_the_same_moment(
    committed_at: float, created_at: str | None, took: str
) -> None:
    state = Tracked(
        "e",
        Stage.PUBLISHED,
        replace(committed(1), committed_at=committed_at, created_at=created_at),
        published_at=1_770_000_000.777,
    )

    page = Pages("t", ConsoleSettings(), formatting.Commands(), ())
    recent = page.sections(Snapshot(1, NOON, Flow(NOON), recent=[state]))["recent"]
    [accepted] = [step for step in steps(state) if step.kind == "accepted"]
    changes = {change.what: change for change in Changes().of(json.loads(encoded(state)))}

    assert re.search(f'<td class="number took"[^>]*>{took}</td>', recent)
    assert ("createdAt is missing" in recent) is (took == formatting.UNKNOWN)
    assert formatting.span(accepted.after_s) == took
    assert formatting.span(changes["accepted"].after_s) == took
    reason = NO_START if took == formatting.UNKNOWN else None
    assert (state.not_measured, changes["accepted"].not_measured) == (reason, reason)
    assert accepted.why == (reason and f"not measured: {reason}")
    assert json.loads(encoded(state))["not_measured"] == reason
    assert (f", not measured: {reason}  e" in changes["accepted"].as_line()) is (reason is not None)
    assert json.loads(changes["accepted"].as_json())["notMeasured"] == reason


async def test_watch_ends_when_the_stack_says_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await watched.wait()
        return response

    watched = asyncio.Event()
    app = web.Application()
    app.router.add_get("/events.json", silent)
    monkeypatch.setattr(command, "_SILENCE_S", 0.01)
    async with TestServer(app) as server:
        settings = {"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS, READY: str(server.make_url("/ready"))}
        monkeypatch.setattr(command, "settings_of_running", lambda _: settings)

        code = await command.run(options=command.Options(env_file=Path("e")))
        watched.set()

    assert code == 1
    assert capsys.readouterr().err.startswith("The local stack does not answer any more: ")
