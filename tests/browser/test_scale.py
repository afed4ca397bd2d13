"""The console with very many keys, and with a stream that is lost."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect

from outbox_relay.operator.console.model import Partition, Timeline
from outbox_relay.operator.console.server import serving
from tests.support.browser import new_page
from tests.support.console_page import Checker, ConsolePage, console_of
from tests.support.console_view import InMemoryView, busy, committed, tracked

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]

KEYS = 50_000


async def test_50_000_keys_do_not_choke_it(console: ConsolePage) -> None:
    """One event of each, in 200 snapshots, with a thousand partitions; and as many events of one key."""
    view = console.view
    page = await console.open()
    await view.set(partitions=[Partition(str(number), "host-1", "1", 0, 0) for number in range(1024)])

    for last in range(250, KEYS + 1, 250):
        numbers = range(last, last - 50, -1)
        await view.set(
            flow=replace(view.latest.flow, committed=last, published=last),
            recent=[tracked(committed(number, f"contact-{number}")) for number in numbers],
        )
    await expect(page.locator("[sse-swap=committed] .big")).to_have_text("50\u202f000")
    await expect(page.locator("#recent tbody tr").first).to_contain_text("contact-50000")

    assert await page.locator("#partitions tbody tr").count() == 64
    assert await page.evaluate("document.querySelectorAll('*').length") < 2500

    events = [tracked(committed(number, "contact-1")) for number in range(1, KEYS)]
    view.timelines["contact-1"] = Timeline("contact-1", events)
    await console.open("contact-1")
    await expect(page.locator("#timeline li.event")).to_have_count(100)
    await expect(page.locator("#timeline")).to_contain_text("100 events, and there are older ones")


async def test_a_lost_stream_is_opened_again_and_shows_what_came_in_between(browser: Browser) -> None:
    view, checker = InMemoryView(busy()), Checker()
    page = await new_page(browser)
    async with serving(console_of(view, checker), "127.0.0.1", 0) as address:
        await page.goto(address)
        await expect(page.locator("#connection")).to_have_text("live")
    await expect(page.locator("#connection")).to_contain_text("reconnecting, last heard at")
    await expect(page.locator("#away")).to_contain_text("The console does not answer. What is below was known at")
    await expect(page.locator(".headline")).to_be_hidden()

    await view.count(committed=77)
    async with serving(console_of(view, checker), "127.0.0.1", urlsplit(address).port or 0):
        await expect(page.locator("#connection")).to_have_text("live")
        await expect(page.locator("[sse-swap=committed] .big")).to_have_text("77")
        await expect(page.locator(".headline")).to_be_visible()
        await expect(page.locator("#away")).to_be_hidden()
        await page.context.close()
