"""Selected records of quarantine: one command for all of them, for no record that the page does not show."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.model import QuarantineGroup
from outbox_relay.operator.console.page_query import AT_ONCE, MOST_RECORDS, selection
from outbox_relay.operator.console.server import loopback
from relay.core.events import Reason
from relay.core.remedy import parsed_word
from tests.support.console_view import InMemoryView, busy, record

Client = TestClient[web.Request, web.Application]

FIRST, SECOND, REFUSED = (record(number).id for number in (1, 2, 4))
HOSTILE = '"><script>alert(1)</script>$(id)'


@pytest.fixture
def view() -> InMemoryView:
    return InMemoryView(busy())


@pytest.fixture
async def client(view: InMemoryView) -> AsyncIterator[Client]:
    async with TestClient(TestServer(application(view, loopback))) as started:
        yield started


def selected_in(page: str) -> str:
    return page.partition('sse-swap="selection">')[2].partition('<div sse-swap="quarantine">')[0]


def copied(text: str) -> list[str]:
    return [html.unescape(each) for each in re.findall('data-copy="([^"]*)"', text)]


async def test_the_selected_records_have_one_command_each_way(client: Client) -> None:
    query = [("record", FIRST), ("record", REFUSED), ("record", FIRST)]

    page = await (await client.get("/", params=query)).text()

    assert "2 selected" in selected_in(page)
    assert copied(selected_in(page)) == [
        f"python -m relay quarantine release {FIRST} {REFUSED}",
        f"python -m relay quarantine discard {FIRST} {REFUSED}",
    ]
    assert re.findall(r'name="record" value="(\w+)" checked', page) == [FIRST, REFUSED]
    assert f'sse-connect="/stream?record={FIRST}&amp;record={REFUSED}"' in page
    assert copied(selected_in(await (await client.get("/")).text())) == []


async def test_no_command_names_a_record_that_the_page_does_not_show(client: Client) -> None:
    query = [("record", SECOND), ("record", "f" * 40), ("record", HOSTILE)]

    page = await (await client.get("/", params=query)).text()

    assert "1 selected</strong>, and 2 that are not among the records shown below." in selected_in(page)
    assert copied(selected_in(page)) == [
        f"python -m relay quarantine {command} {SECOND}" for command in ("release", "discard")
    ]
    assert "f" * 40 not in selected_in(page)
    assert "<script>alert" not in page


async def test_a_selection_and_a_filter_keep_each_other(client: Client) -> None:
    params = [("key", "contact-1"), ("stage", "parked"), ("action", HOSTILE), ("record", SECOND)]

    page = await (await client.get("/key", params=params)).text()

    filtering = page.partition('class="filter"')[2].partition("</form>")[0]
    selecting = page.partition('class="select"')[2].partition("</form>")[0]
    assert f'<input type="hidden" name="record" value="{SECOND}">' in filtering
    for form in (filtering, selecting):
        assert '<input type="hidden" name="key" value="contact-1">' in form
    assert '<input type="hidden" name="stage" value="parked">' in selecting
    assert HOSTILE not in page
    assert "<script>alert" not in page


async def test_more_records_than_an_address_holds_are_refused(client: Client) -> None:
    async with client.get("/", params=[("record", str(number)) for number in range(MOST_RECORDS + 1)]) as answer:
        assert answer.status == 400
        assert f"record: at most {MOST_RECORDS}" in await answer.text()


def test_commands_of_many_records_fit_a_shell_and_name_each_once() -> None:
    groups = [
        QuarantineGroup(reason, 10, [record(10 * number + each, reason=reason) for each in range(10)])
        for number, reason in enumerate(Reason)
    ]
    snapshot = replace(busy(), quarantine=groups)
    ids = [each.id for group in groups for each in group.examples][:MOST_RECORDS]

    made = selection(snapshot, ids, Commands()).commands

    named: dict[str, list[str]] = {"release": [], "discard": []}
    for _, command in made:
        words = shlex.split(str(command))
        assert len(str(command)) < 8_191
        parsed = PROGRAM.parse(words[3:])
        named[words[4]] += parsed.positional
        assert len(parsed.positional) <= AT_ONCE
    assert named["discard"] == ids
    # An event that can never be sent is not offered for a release.
    assert set(named["release"]) < set(ids)
    assert named["release"] == [each for each in ids if each in set(named["release"])]


def test_an_id_of_others_stays_one_argument() -> None:
    hostile = record(1, id="\x1b[201~rm -rf ~; $(id)")
    snapshot = replace(busy(), quarantine=[QuarantineGroup("message-refused", 1, [hostile])])

    for _, command in selection(snapshot, [hostile.id], Commands()).commands:
        assert [parsed_word(word) for word in shlex.split(str(command))[5:]] == [hostile.id]
