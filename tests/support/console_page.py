"""The console in a real browser, on a view that a test sets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from aiohttp import web
from playwright.async_api import Browser, Page, expect

from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.pages import ConsoleSettings
from outbox_relay.operator.console.server import loopback, serving
from relay.backends.findings import Finding
from tests.support.browser import new_page
from tests.support.console_view import FINDINGS, InMemoryView, busy, history

SHOWN = ConsoleSettings("https://traces.test/trace/{trace_id}", show_data=True)


@dataclass
class Checker:
    """A check that counts how often it is run."""

    findings: Sequence[Finding] = tuple(FINDINGS)
    runs: int = 0

    async def __call__(self) -> Sequence[Finding]:
        self.runs += 1
        return self.findings


@dataclass
class ConsolePage:
    """A page of the console, and what happened in the browser while it was open.

    Attributes:
        complaints: Errors and warnings of the browser's console, and exceptions of scripts.
        elsewhere: Requests to anything but the console.
    """

    view: InMemoryView
    page: Page
    address: str
    checker: Checker
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Begin to note complaints and requests."""
        page, own = self.page, urlsplit(self.address).netloc
        page.on("console", lambda said: self.complaints.append(said.text) if said.type != "log" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: self.elsewhere.append(request.url) if urlsplit(request.url).netloc != own else None,
        )

    async def open(self, partition_key: str = "") -> Page:
        """Show the page, or a key's, until its stream has begun."""
        path = f"key?key={quote(partition_key, safe='')}" if partition_key else ""
        await self.page.goto(self.address + path)
        await self.is_live()
        return self.page

    async def is_live(self) -> None:
        """Wait until the stream has sent every section."""
        state = re.compile("live|stale")
        await expect(self.page.locator("#connection")).to_have_attribute("data-state", state)
        # The last of what the stream sends when it begins.
        await expect(self.page.locator("[sse-swap=totals]")).not_to_be_empty()


def console_of(view: InMemoryView, checker: Checker) -> web.Application:
    """The console of a view, for this machine."""
    return application(view, loopback, name="domain-events", settings=SHOWN, check=checker)


@asynccontextmanager
async def console_page(browser: Browser) -> AsyncIterator[ConsolePage]:
    """A console of a busy relay, and a page of it."""
    view, checker = InMemoryView(busy(), [history()]), Checker()
    page = await new_page(browser, viewport={"width": 1280, "height": 860}, color_scheme="light")
    async with serving(console_of(view, checker), "127.0.0.1", 0) as address:
        made = ConsolePage(view, page, address, checker)
        made.watch()
        yield made
        await page.context.close()
