"""The commands that the page shows: they run as pasted, and are offered only where they can help."""

from __future__ import annotations

import html
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from outbox_relay.command_line import python
from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.model import (
    Flow,
    Partition,
    QuarantineGroup,
    QuarantineRecord,
    Snapshot,
    Timeline,
)
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from relay.core.events import Reason
from relay.core.remedy import Invocation
from tests.support.console_deployment import NOW, Deployment

ENV_FILE = Path("my stack.env")


def pages() -> Pages:
    return Pages("t", ConsoleSettings(), Commands(Invocation(python(), (str(ENV_FILE),), stream="orders")), ())


def snapshot_with(reason: str) -> Snapshot:
    record = QuarantineRecord("0123456789ab", "k 1", "d", reason, "said", "2026-01-01T00:00:00+00:00")
    stuck = Partition("0", "host", "1", 1, 90.0, withheld="too deep")
    retried = Partition(
        "1", "host", "1", 1, 90.0, retry=3, error="said. To set it aside: python -m relay quarantine add k id"
    )
    return Snapshot(
        1, NOW, Flow(NOW), partitions=[stuck, retried], quarantine=[QuarantineGroup(reason, 1, [record])]
    )


def copied(text: str) -> list[str]:
    return [html.unescape(each) for each in re.findall('data-copy="([^"]*)"', text)]


def test_the_pages_of_streams_share_the_code_of_a_template_and_nothing_else() -> None:
    by = Commands(Invocation(python()))
    orders, returns = (Pages("t", ConsoleSettings(), by, (), stream=stream) for stream in ("orders", "returns"))
    templates = [each._environment.get_template("timeline.html") for each in (orders, returns)]
    shown = [
        each.timeline(Timeline("k", (), parked_since="2026-01-01T00:00:00+00:00")) for each in (orders, returns)
    ]

    assert templates[0].root_render_func.__code__ is templates[1].root_render_func.__code__
    assert [orders.root in each for each in shown] == [True, False]
    assert [returns.root in each for each in shown] == [False, True]


@pytest.mark.parametrize("reason", Reason)
def test_each_command_has_the_interpreter_and_the_env_file_in_use(reason: Reason) -> None:
    sections = pages().sections(snapshot_with(reason))
    timeline = pages().timeline(Timeline("k 1", (), parked_since="2026-01-01T00:00:00+00:00"))

    commands = [each for section in (*sections.values(), timeline) for each in copied(section)]

    assert len(commands) >= 4
    for each in commands:
        words = shlex.split(each)
        assert words[: len(shlex.split(python())) + 2] == [*shlex.split(python()), "-m", "relay"]
        assert words[words.index("--env-file") + 1] == str(ENV_FILE)


@pytest.mark.parametrize(
    ("reason", "offered"),
    [
        (Reason.ID_TOO_LONG, {"discard"}),
        (Reason.DATA_NOT_OBJECT, {"discard"}),
        (Reason.MESSAGE_TOO_LARGE, {"release", "discard"}),
        (Reason.KEY_PARKED, {"release", "discard"}),
        ("a-reason-of-a-later-version", {"release", "discard"}),
    ],
)
def test_a_release_is_offered_only_where_it_can_help(reason: str, offered: set[str]) -> None:
    section = pages().sections(snapshot_with(reason))["quarantine"]

    assert set(re.findall("quarantine (release|discard)", " ".join(copied(section)))) == offered


async def test_a_position_stands_still_from_the_first_event_that_waits_on() -> None:
    relayed = Deployment()
    relayed.outbox.commit("a")
    await relayed.observer.look()
    relayed.outbox.pass_all()
    idle = (await relayed.observer.look()).partitions[0]
    relayed.now = NOW + 600
    relayed.outbox.commit("b", committed_at=NOW + 590.5)
    stuck = (await relayed.observer.look()).partitions[0]

    assert (idle.moved_at, idle.still_since) == (NOW, None)
    assert (stuck.moved_at, stuck.still_since) == (NOW, NOW + 590.5)
    later = replace(relayed.observer.latest, at=NOW + 610)
    assert re.search("Not moving since <time[^>]*>13:56:40<", pages().sections(later)["partitions"])
