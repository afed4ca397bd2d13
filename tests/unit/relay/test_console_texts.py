"""The console's texts: numbers, times, commands, its first sentence, and its settings."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace

import pytest

from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.console import formatting
from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.model import (
    Arrival,
    Delivery,
    Flow,
    Known,
    Partition,
    Problem,
    Snapshot,
    Stage,
    Subscription,
    Tracked,
)
from outbox_relay.operator.console.pages import ConsoleSettings
from outbox_relay.operator.console.status import headline
from outbox_relay.operator.console.timeline import steps
from outbox_relay.operator.console.truncation import REASON
from outbox_relay.operator.reasons import State
from relay.backends.findings import Finding, Level
from relay.backends.outbox import cut_text
from relay.core.errors import BlockedError, SettingsError
from relay.core.remedy import PLAIN, Invocation, Sentence, set_aside
from relay.core.results import KeyFailure, Outcome
from tests.support.console_view import NOON, TRACE, busy, committed, current, delivered, record, tracked


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (-3, "0 s"),
        (0, "0 s"),
        (0.0354, "35 ms"),
        (0.9996, "1.0 s"),
        (4.24, "4.2 s"),
        (59.2, "59 s"),
        (59.99, "1 min"),
        (200, "3 min 20 s"),
        (3599.9, "1 h"),
        (7500, "2 h 5 min"),
        (863_990, "9 d 23 h"),
        (86_400 * 12 + 4000, "12 d"),
    ],
)
def test_spans_are_written_in_their_largest_units(seconds: float | None, text: str) -> None:
    assert formatting.span(seconds).replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0"),
        (0.04, "0.0"),
        (9.94, "9.9"),
        (9.96, "10"),
        (24.6, "25"),
        (12_345, "12 345"),
    ],
)
def test_rates_are_written_as_precisely_as_they_can_be_read(per_second: float | None, text: str) -> None:
    assert formatting.rate(per_second).replace("\u202f", " ") == text


def test_times_are_written_in_utc() -> None:
    assert formatting.clock(NOON) == "11:30:00"
    assert formatting.clock(NOON + 0.0361) == "11:30:00.036"
    assert formatting.date(NOON) == "2026-02-09"
    assert formatting.written("2026-02-09T12:30:00+01:00") == "2026-02-09 11:30:00"
    assert formatting.written("<yesterday>\n") == "<yesterday>\\n"
    assert formatting.written("9999-12-31T23:00:00-05:00") == "9999-12-31T23:00:00-05:00"


def test_commands_name_the_outbox_where_there_are_two() -> None:
    assert str(Commands().release_record("3f1c")) == "python -m relay quarantine release 3f1c"
    sql = Invocation(source="sql")
    assert Commands(sql).release_record("-3f1c").render(sql) == (
        "python -m relay quarantine release --source sql percent:-3f1c"
    )
    assert Commands(sql).release_key("a b").render(sql) == (
        "python -m relay quarantine release --source sql --all '--partition-key=a b'"
    )


@pytest.mark.parametrize(
    ("traceparent", "template", "address"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", "https://t.test/{trace_id}?x=1", f"https://t.test/{TRACE}?x=1"),
        (f"00-{TRACE}-00f067aa0ba902b7-01", None, None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", "https://t.test/{trace_id}", None),
        (f"00-{TRACE}-00f067aa0ba902b7-01\n", "https://t.test/{trace_id}", None),
        ("00-../../../evil-00f067aa0ba902b7-01", "https://t.test/{trace_id}", None),
        (None, "https://t.test/{trace_id}", None),
    ],
)
def test_only_a_trace_of_w3c_becomes_a_link(
    traceparent: str | None, template: str | None, address: str | None
) -> None:
    assert ConsoleSettings(template).trace_address(traceparent) == address


CALM_TEXT = "Every committed event has been accepted by the topic."
CALM = Snapshot(1, NOON, Flow(NOON, committed=5, published=5, waiting=0, lag_s=0.0), known=current(NOON))


@pytest.mark.parametrize(
    ("snapshot", "level", "text"),
    [
        (Snapshot(0, NOON, Flow(NOON)), Level.UNKNOWN, "The outbox is being read."),
        (
            replace(CALM, known=current(NOON) | {"waiting": Known()}),
            Level.UNKNOWN,
            "The outbox is being read: 5 events so far.",
        ),
        (
            replace(
                CALM,
                known=current(NOON) | {"waiting": Known(NOON + 0.5)},
                problems=[Problem("outbox", "it is away")],
            ),
            Level.WARNING,
            "It is not known since 11:30:00 what waits, as not everything could be read (outbox): see below.",
        ),
        (CALM, Level.OK, CALM_TEXT),
        (replace(CALM, flow=Flow(NOON, waiting=1, lag_s=9)), Level.WARNING, "1 event waits, for 9.0 s."),
        (replace(CALM, flow=Flow(NOON, waiting=1, lag_s=1)), Level.OK, "1 event on the way to the topic."),
        (
            replace(CALM, flow=Flow(NOON, waiting=2, lag_s=9)),
            Level.WARNING,
            "2 events wait, the oldest for 9.0 s.",
        ),
        (replace(CALM, flow=Flow(NOON, parked=1)), Level.WARNING, "1 parked key."),
        (replace(CALM, subscriptions=[Subscription("a", 0, 2)]), Level.WARNING, "2 dead-lettered messages."),
        (
            replace(CALM, problems=[Problem("outbox", "it is away")]),
            Level.WARNING,
            "Not everything could be read (outbox): see below.",
        ),
        (
            replace(busy(), partitions=[Partition(name, None, None, 1, 9, retry=2) for name in "ab"]),
            Level.ERROR,
            "Partition a and 1 more are being retried: see the error below.",
        ),
        (
            replace(CALM, partitions=[Partition("2", None, None, 5, 31)], flow=Flow(NOON, waiting=5, lag_s=31)),
            Level.ERROR,
            "Nobody reads partition 2.",
        ),
        (
            replace(CALM, partitions=[Partition(name, None, None, 5, 31) for name in "abcde"]),
            Level.ERROR,
            "Nobody reads the partitions a, b, c and 2 more.",
        ),
        (replace(CALM, partitions=[Partition("2", None, None, 5, 29)]), Level.OK, CALM_TEXT),
        (
            replace(
                CALM, partitions=[Partition("2", None, None, 5, 31, withheld="MaxDepth of 64 has been exceeded")]
            ),
            Level.ERROR,
            "Partition 2 is stopped at a document that the host cannot hand over: see the error below.",
        ),
        (
            replace(CALM, obstacles=[Finding.error("the topic 't' is Disabled", "Set its status to Active.")]),
            Level.ERROR,
            "The topic 't' is Disabled.",
        ),
        (
            replace(CALM, flow=Flow(NOON, waiting=1, headroom_s=1800)),
            Level.ERROR,
            "1 event waits, and is deleted by its time to live in 30 min.",
        ),
        (
            replace(CALM, flow=Flow(NOON, waiting=3, headroom_s=1800, lag_s=99)),
            Level.ERROR,
            "The first of 3 events that wait is deleted by its time to live in 30 min.",
        ),
    ],
)
def test_the_first_sentence_is_the_most_serious(snapshot: Snapshot, level: Level, text: str) -> None:
    said = headline(snapshot)

    assert (said.level, said.text.replace("\u202f", " ")) == (level, text)


def test_prose_keeps_its_end_and_cuts_ids() -> None:
    text = f"The event {'x' * 2000!r}\nholds up 'k'.\tSet it aside.\x1b"

    shown = formatting.prose(text, 200)

    assert shown.endswith("holds up 'k'. Set it aside.\\x1b")
    assert len(shown) <= 200
    assert "x…x" in shown
    assert formatting.prose("word " * 500, 100).endswith("word word")
    assert formatting.advice(Sentence(f"a\n{'y' * 99} ", set_aside("k", "z" * 99)), PLAIN) == (
        f"a {'y' * 23}…{'y' * 23} python -m relay quarantine add k {'z' * 99}"
    )
    assert formatting.advice(None, PLAIN) == formatting.prose(None) == "\N{EN DASH}"
    assert formatting.lines('{"a": 1,\n\t"b": "\x1b"}') == '{"a": 1,\n  "b": "\\x1b"}'
    assert formatting.visible("a\nb\tc\r\x00") == "a\\nb\\tc\\r\\x00"


@pytest.mark.parametrize(
    ("key", "identifier"), [("k", "e"), ("it's a", "x" * 2000), ("--k", "e; $(id)"), ("KEY", "`")]
)
def test_the_command_for_a_blocked_key_is_whole_whatever_its_names(key: str, identifier: str) -> None:
    failure = KeyFailure(key, 1, BlockedError("refused for its size"), blocked_by=identifier)
    outcome = Outcome(3, 0, 2, 0, 0, Counter(), 1, 1, 3, [failure], [])

    assert formatting.set_aside_commands(outcome.explain()) == [set_aside(key, identifier)]
    assert "To set it aside" in formatting.prose(outcome.explain(), 1200)


@pytest.mark.parametrize(
    "text",
    [
        "To set it aside: python -m relay quarantine add k 'e",
        "To set it aside: python -m relay quarantine add k",
        "To set it aside: python -m relay quarantine add k e --yes",
        "To set it aside: python -m relay quarantine add k 'e';rm",
        "To set it aside: python -m relay quarantine discard --all",
        "Set it aside with `python -m relay quarantine add KEY ID`.",
    ],
)
def test_what_only_looks_like_such_a_command_is_none(text: str) -> None:
    assert formatting.set_aside_commands(text) == []


def test_every_command_of_the_page_is_one() -> None:
    commands = Commands()
    made = [
        *(command for state in State for command in commands.of_state(state)),
        *(command for _, command in commands.dead_letters("-all", "-x y")),
        *(command for _, command in commands.dead_letters("-all", "-x" * 99 + "y…")),
        *(commands.of_reason(each, "message-refused") for each in ("release", "discard")),
        *(make(["-r1234567", "r7654321"]) for make in (commands.release_records, commands.discard_records)),
        *(commands.check(), commands.scan(), commands.release_key("-k"), commands.release_record("-r1234567")),
    ]

    for command in made:
        assert PROGRAM.parse(shlex.split(str(command))[3:]).name
    assert {state for state in State if not commands.of_state(state)} == {State.TTL_HEADROOM, State.LAG}


def test_a_reason_that_is_cut_chooses_no_dead_letters() -> None:
    whole, cut = "x" * REASON, cut_text("x" * (REASON + 1), REASON)

    assert [str(command).count(whole) for _, command in Commands().dead_letters("all", whole)] == [1, 1, 1]
    assert [(what, str(command)) for what, command in Commands().dead_letters("all", cut)] == [
        (
            "list the dead letters of the subscription",
            "python -m relay deadletters list --subscription=all",
        )
    ]


def test_commands_of_a_stream_choose_it_and_those_of_a_queue_name_no_subscription() -> None:
    by = Invocation(source="sql", stream="orders")
    commands = Commands(by, is_queue=True)

    listing = dict(commands.dead_letters("orders-in", "x"))["list the dead letters with this reason"]
    assert listing.render(by) == ("python -m relay deadletters list --stream orders --reason=x")
    assert [each.render(by) for each in commands.of_state(State.PARKED)] == [
        "python -m relay quarantine list --source sql --stream orders"
    ]


def test_an_event_takes_the_steps_that_are_known() -> None:
    event = committed(1)
    waiting = Delivery(event.id, "all", Arrival.WAITING, event.committed_at + 0.5)
    gone = Tracked("x", Stage.QUARANTINED, None, quarantined=record(1))
    cases = [
        (tracked(event, Stage.COMMITTED), ["committed", "accepted (not yet)"]),
        (tracked(event), ["committed", "accepted"]),
        (
            tracked(event, deliveries=[delivered(event), waiting]),
            ["committed", "accepted", "delivered", "waiting (not yet)"],
        ),
        (tracked(event, Stage.PARKED, quarantined=record(1)), ["committed", "parked"]),
        (tracked(event, Stage.QUARANTINED), ["committed", "quarantined"]),
        # Released from quarantine by another copy, or accepted before its key was parked.
        (
            tracked(event, Stage.QUARANTINED, deliveries=[waiting]),
            ["committed", "quarantined", "accepted", "waiting (not yet)"],
        ),
        (gone, ["quarantined"]),
    ]

    for state, wanted in cases:
        kinds = [each.kind + ("" if each.done else " (not yet)") for each in steps(state)]
        assert kinds == wanted


def test_clocks_that_disagree_show_no_negative_time() -> None:
    event = committed(1, committed_at=NOON + 1.5)

    accepted = steps(tracked(event, published_at=event.committed_at - 0.4))[1]

    assert accepted.after_s == 0


def test_the_settings_of_the_console() -> None:
    assert (
        ConsoleSettings.from_environment({"CONSOLE_TRACE_URL": " ", "CONSOLE_SHOW_DATA": ""}) == ConsoleSettings()
    )
    whole = {"CONSOLE_TRACE_URL": "https://t.test/#/{trace_id}", "CONSOLE_SHOW_DATA": "True"}
    assert ConsoleSettings.from_environment(whole) == ConsoleSettings("https://t.test/#/{trace_id}", True)
    linked = ConsoleSettings.from_environment({"CONSOLE_RUNBOOK_URL": "https://docs.test/runbook.html"})
    assert linked.runbook_address("lag") == "https://docs.test/runbook.html#lag"
    assert ConsoleSettings().runbook_address("lag") is None


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "docs/runbook.md", "https:///x", "https://u:p@docs.test/", "https://docs.test/#lag"],
)
def test_only_an_address_of_the_web_without_a_section_is_the_runbook(address: str) -> None:
    with pytest.raises(SettingsError, match="CONSOLE_RUNBOOK_URL is"):
        ConsoleSettings.from_environment({"CONSOLE_RUNBOOK_URL": address})


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert('{trace_id}')",
        "data:text/html,{trace_id}",
        "https://{trace_id}.test/",
        "https://t.test/",
        "t.test/{trace_id}",
        "https:///{trace_id}",
        "https://[::1/{trace_id}",
    ],
)
def test_only_an_address_of_the_web_with_a_place_for_the_trace_is_a_setting(address: str) -> None:
    with pytest.raises(
        SettingsError, match=r"CONSOLE_TRACE_URL .*(?s:.*)CONSOLE_SHOW_DATA is 'yes': set 'true' or"
    ):
        ConsoleSettings.from_environment({"CONSOLE_TRACE_URL": address, "CONSOLE_SHOW_DATA": "yes"})
