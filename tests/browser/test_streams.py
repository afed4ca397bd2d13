"""The page of all streams in the browser: its lines, what is stale, and the way to a stream and back."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from outbox_relay.operator.console.application import application_of_streams
from outbox_relay.operator.console.overview import StreamView
from outbox_relay.operator.console.server import loopback, serving
from tests.browser.test_states import CONTRASTS, OVERFLOWING
from tests.support.browser import new_page
from tests.support.console_page import SHOWN, Checker, ConsolePage
from tests.support.console_states import states
from tests.support.console_view import InMemoryView, busy, history

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]

# As long as names may be.
LONG = "a" * 24 + "-" + "b" * 24


async def test_the_page_of_all_streams_shows_each_and_leads_to_each(browser: Browser) -> None:
    views = {
        "default": InMemoryView(busy()),
        "orders": InMemoryView(states()["the source is down"], [history()]),
        LONG: InMemoryView(states()["late"]),
    }
    streams = [StreamView(name, "container 'data'", f"topic '{name}'", view) for name, view in views.items()]
    app = application_of_streams(streams, loopback, settings=SHOWN, check=Checker())
    page = await new_page(browser, viewport={"width": 1280, "height": 860}, color_scheme="light")
    async with serving(app, "127.0.0.1", 0) as address:
        console = ConsolePage(views["default"], page, address, Checker())
        console.watch()
        page = await console.open()
        orders = page.get_by_role("row").filter(has=page.get_by_role("link", name="orders", exact=True))
        await expect(orders).to_contain_text("It is not known since 11:29:50 what waits")
        await expect(orders.locator("td.stale")).to_have_count(2)
        await expect(page.locator("#connection-text")).to_have_text("orders: stale since 11:29:50")
        for width in (1280, 768, 390):
            await page.set_viewport_size({"width": width, "height": 860})
            found = await page.evaluate(OVERFLOWING)
            assert not found, "\n".join(found)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            contrasts = await page.evaluate(CONTRASTS)
            assert not [each for each in contrasts.values() if each[0] < 4.5]

        await views["orders"].show(busy())
        await expect(orders.locator("td.stale")).to_have_count(0)
        await expect(page.locator("#connection-text")).to_have_text("live")
        await orders.get_by_role("link").click()
        await console.is_live()
        await expect(page.locator(".switch [aria-current]")).to_have_text("orders")
        await page.locator("#key").fill("contact-1")
        await page.keyboard.press("Enter")
        await expect(page.locator("#timeline .event").first).to_be_visible()
        await page.get_by_text("The whole stream", exact=True).click()
        await page.get_by_role("button", name="Run the check").click()
        await expect(page.locator("#findings .findings li")).to_have_count(4)
        await page.get_by_role("link", name="All streams").click()
        await expect(page.locator(".switch [aria-current]")).to_have_text("All streams")
        await page.context.close()

    assert (console.complaints, console.elsewhere) == ([], [])
