"""The pages have the numbers of the code: limits, pauses and sizes that a reader plans with."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

import local.console.topic
import local.stack.up
import outbox_relay.changefeed.feed
import outbox_relay.emulators.servicebus.admin
import outbox_relay.inbox.receiver
import outbox_relay.inbox.stores.port
import outbox_relay.operator.backends.cosmos.scan
import outbox_relay.operator.cli.main
import outbox_relay.operator.cli.quarantine
import outbox_relay.operator.cli.quarantine_admin
import outbox_relay.operator.cli.sender
import outbox_relay.operator.cli.smoke
import outbox_relay.operator.console.application
import outbox_relay.operator.console.backlog
import outbox_relay.operator.console.model
import outbox_relay.operator.console.pages
import outbox_relay.operator.deadletters.queue
import outbox_relay.outbox.errors
import outbox_relay.outbox.relayable
import outbox_relay.outbox.unit_of_work
import relay.backends.cosmos.ages
import relay.backends.sql.memory
import relay.backends.sql.worker
import relay.config.settings
import relay.core.events
import relay.core.orders
import relay.telemetry.attempt
import relay.telemetry.gauges
import relay.telemetry.instruments
from local.stack.ports import PORTS
from outbox_relay import command_line
from outbox_relay.inbox.options import Options
from tests.unit.test_documented_names import page

WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 8: "eighth", 10: "ten", 50: "fifty"}

# Of a page: its words, with {} for the number as the page writes it.
CLAIMS: list[tuple[str, str, Any]] = [
    ("docs/capacity.md", "An {} of it is reserved before a page is read", relay.backends.sql.memory._SHARES),
    ("docs/console.md", "With more than {} partitions", outbox_relay.operator.console.pages._MOST_PARTITIONS),
    ("docs/console.md", "The latest {} of all partitions", outbox_relay.operator.console.backlog.MOST),
    ("docs/console.md", "the {} oldest of each", outbox_relay.operator.console.model.EXAMPLES),
    (
        "docs/console.md",
        "the oldest event first; at most {} events",
        outbox_relay.operator.console.application._MOST_EVENTS_OF_KEY,
    ),
    ("docs/dead-letters.md", "it has {} lines", outbox_relay.operator.cli.quarantine._DEFAULT_LIMIT),
    (
        "docs/dead-letters.md",
        "it, {} at most, and release them at the end",
        outbox_relay.operator.deadletters.queue.HELD,
    ),
    ("docs/guarantees.md", "nested at most {} levels deep", outbox_relay.operator.backends.cosmos.scan.MAX_DEPTH),
    (
        "docs/guarantees.md",
        "no integer of more than {} characters",
        outbox_relay.operator.backends.cosmos.scan.MAX_INTEGER_CHARACTERS,
    ),
    ("docs/guarantees.md", "together within {} bytes", relay.core.events.MAX_PROPERTIES_BYTES),
    ("docs/guarantees.md", "set aside within {} seconds of its commit", relay.core.orders._UNTRIED_S),
    ("docs/local-stack.md", "the latest {} of each", local.console.topic._REMEMBERED),
    ("docs/message-contract.md", "1 to {} UTF-16 units", relay.core.events.MAX_KEY_LENGTH),
    (
        "docs/message-contract.md",
        "the properties together exceed {} bytes",
        relay.core.events.MAX_PROPERTIES_BYTES,
    ),
    (
        "docs/operators.md",
        "its first {} characters or more are enough",
        outbox_relay.operator.cli.quarantine_admin.LEAST_ID,
    ),
    ("docs/operators.md", "a cell has at most {} columns", command_line.WIDEST),
    ("docs/operators.md", "writes an event of {} MB", outbox_relay.operator.cli.smoke._OVERSIZED_BYTES / 1e6),
    ("docs/operators.md", "{} small events must arrive", outbox_relay.operator.cli.smoke._SMALL),
    ("docs/operators.md", "up to {} differences", outbox_relay.operator.cli.smoke._SHOWN_DIFFERENCES),
    ("docs/operators.md", "A failed send is tried {} times", len(outbox_relay.operator.cli.sender._PAUSES_S) + 1),
    (
        "docs/receiving-events.md",
        "A receiver that has nothing to do has {} of them open",
        outbox_relay.inbox.receiver.FEWEST,
    ),
    (
        "docs/receiving-events.md",
        "sessions come within {} seconds of their requests",
        outbox_relay.inbox.receiver._SOON_S,
    ),
    ("docs/receiving-events.md", "with a `sequence` beyond ±({}", "2⁶³"),
    ("docs/sql.md", "every {} ms while events arrive", outbox_relay.changefeed.feed._SOONEST_LOOK_S * 1000),
    ("docs/sql.md", "every {} ms when none has arrived", outbox_relay.changefeed.feed._LATEST_LOOK_S * 1000),
    ("docs/sql.md", "The pause between ticks lasts about {} seconds", 60 - relay.backends.sql.worker._LASTS_S),
    ("docs/telemetry.md", "the first {} distinct ones", relay.telemetry.instruments.MAX_ACTIONS),
    ("docs/telemetry.md", "distinct ones of up to {} characters", relay.telemetry.instruments.MAX_ACTION_LENGTH),
    ("docs/telemetry.md", "for at most {} minutes", relay.telemetry.gauges.FORGOTTEN_AFTER_S / 60),
    ("docs/telemetry.md", "the {} oldest are", relay.telemetry.gauges.MAX_LEASES),
    ("docs/telemetry.md", "among the batch's first events, {} at most", relay.telemetry.attempt.MAX_LINKS),
    ("docs/telemetry.md", "It takes at most {} seconds", relay.backends.cosmos.ages._LOOK_TIMEOUT_S),
    ("docs/writing-events.md", "{} operations and 2 MB", outbox_relay.outbox.errors.MAX_OPERATIONS),
    ("docs/writing-events.md", "at most **{} levels**", outbox_relay.outbox.relayable.MAX_DEPTH),
    ("docs/writing-events.md", "At most ±({}", "2⁵³"),
    (
        "docs/writing-events.md",
        "at most {} bytes of UTF-8 together",
        outbox_relay.outbox.relayable.MAX_PROPERTIES_BYTES,
    ),
    ("docs/writing-events.md", "| 864000: ten days |", outbox_relay.outbox.unit_of_work.TEN_DAYS_S),
    (
        "packages/emulators/docs/edges.md",
        "the {} messages that have waited longest",
        outbox_relay.emulators.servicebus.admin._WAITING,
    ),
    (
        "packages/emulators/docs/edges.md",
        "the first {} KiB of their bodies",
        outbox_relay.emulators.servicebus.admin._BODY_BYTES / 1024,
    ),
]


def spellings(number: Any) -> set[str]:
    """How a page may write a number."""
    if isinstance(number, str):
        return {number}
    plain = f"{number:g}" if number < 1e6 else f"{number:.0f}"
    spelled = {plain, f"{number:,.0f}".replace(",", " ")} if number == int(number) else {plain}
    return spelled | {WORDS[number]} if number in WORDS else spelled


@pytest.mark.parametrize(("path", "words", "number"), CLAIMS, ids=lambda value: str(value)[:60])
def test_a_page_has_the_number_of_the_code(path: str, words: str, number: Any) -> None:
    text = " ".join(page(path).split()).lower()
    claims = {words.replace("{}", each).lower() for each in spellings(number)}

    assert any(claim in text for claim in claims), f"{path} has none of {sorted(claims)}"


def defaults_on(path: str) -> dict[str, str]:
    """The options in the tables of a page, each with its default as it is written there."""
    found: dict[str, str] = {}
    for names, values in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", page(path), re.MULTILINE):
        options = re.findall(r"`(?:--)?([\w-]+)[^`]*`", names)
        given = [each.strip(" `") for each in values.split(", ")]
        found |= dict(zip(options, given, strict=False)) if len(options) == len(given) else {}
    return found


def test_the_defaults_of_a_receiver_are_on_its_page() -> None:
    documented = defaults_on("docs/receiving-events.md")

    for each in fields(Options):
        assert documented[each.name] == f"{each.default:g}"


def test_the_defaults_of_up_and_of_the_console_are_on_their_pages() -> None:
    started, opened = local.stack.up.Options(), outbox_relay.operator.cli.main.PROGRAM.parse(["console"]).options
    of_up = {"source": started.source, "env-file": started.env_file, "logs": started.logs}
    ports = {port.option.removeprefix("--"): port.default for port in PORTS}
    of_the_console = {"host": opened["host"], "port": opened["port"], "from": opened["begin"]}

    for path, defaults in (("docs/local-stack.md", of_up | ports), ("docs/console.md", of_the_console)):
        documented = defaults_on(path)
        assert {name: documented[name] for name in defaults} == {k: str(v) for k, v in defaults.items()}


def test_the_largest_sequences_are_those_of_the_pages() -> None:
    assert outbox_relay.inbox.stores.port.MAX_SEQUENCE == 2**63 - 1
    assert outbox_relay.outbox.relayable.MAX_INTEGER == 2**53 - 1
    assert outbox_relay.outbox.errors.MAX_BATCH_BYTES == 2 * 1024**2
