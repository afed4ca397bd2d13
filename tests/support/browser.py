"""A real browser, and the page of a console in it while something else runs."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Playwright

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

NO_CHROMIUM = "there is no chromium on PATH; on Debian and Ubuntu, `bash tests/browser/install.sh` installs it"

_EVERY_S = 0.1

_TOTALS = """() => [
    document.querySelector("[sse-swap=committed] .big").innerText,
    document.querySelector("[sse-swap=accepted] .big").innerText,
    [...document.querySelectorAll("[sse-swap=subscriptions] tbody tr")]
        .filter(row => row.querySelector("th").innerText === "all")
        .map(row => row.querySelectorAll("td")[1].innerText).join("") || "0",
]"""


@dataclass(frozen=True, slots=True)
class Shown:
    """The totals that stand on the page; `delivered` is that of the subscription `all`."""

    committed: int
    accepted: int
    delivered: int


async def launch(playwright: Playwright) -> Browser:
    """Start Chromium without a window, and without a way to any other machine.

    Expectations of its pages wait as long as the watchdog.
    """
    from playwright.async_api import expect

    expect.set_options(timeout=1_000 * WATCHDOG_S)
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if os.name == "posix" and os.geteuid() == 0:
        arguments.append("--no-sandbox")
    return await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)


async def new_page(browser: Browser, **options: Any) -> Page:
    """Return a page in a context of its own, whose actions wait as long as the watchdog."""
    context = await browser.new_context(**options)
    context.set_default_timeout(1_000 * WATCHDOG_S)
    return await context.new_page()


async def last_shown(address: str) -> Shown | None:
    """Keep the page of a console open until the console ends, and return what it showed last.

    None if there is no browser.
    """
    try:
        from playwright.async_api import async_playwright
    except ModuleNotFoundError:
        return None
    if CHROMIUM is None:
        return None
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        page = await new_page(browser)
        await page.goto(address)
        shown = Shown(0, 0, 0)
        while await page.get_attribute("#connection", "data-state") != "lost":
            shown = Shown(*(int(re.sub(r"\D", "", text) or 0) for text in await page.evaluate(_TOTALS)))
            await look_again()
        await browser.close()
        return shown
