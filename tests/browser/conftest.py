"""One browser for all tests of this folder, and one console on which most of them look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.browser import CHROMIUM, NO_CHROMIUM, launch
from tests.support.console_view import FINDINGS, busy

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.support.console_page import ConsolePage

# pytest reads this file where it runs other tests only, without the group `browser`.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        started = await launch(playwright)
        yield started
        await started.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_console(browser: Browser) -> AsyncIterator[ConsolePage]:
    from tests.support.console_page import console_page

    async with console_page(browser) as console:
        yield console


@pytest_asyncio.fixture(loop_scope="session")
async def console(shared_console: ConsolePage) -> AsyncIterator[ConsolePage]:
    """The console with the state of a busy relay, its page closed.

    After every test nothing has complained in the browser, and no request has gone anywhere else.
    """
    await shared_console.page.goto("about:blank")
    await shared_console.page.set_viewport_size({"width": 1280, "height": 860})
    await shared_console.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    shared_console.checker.findings = FINDINGS
    state = busy()
    await shared_console.view.set(
        **{each: getattr(state, each) for each in ("flow", "partitions", "subscriptions")},
        **{each: getattr(state, each) for each in ("quarantine", "parked_keys")},
        **{
            each: getattr(state, each)
            for each in ("dead_letters", "recent", "problems", "obstacles", "known", "history", "removals")
        },
    )
    shared_console.complaints.clear()
    shared_console.elsewhere.clear()
    yield shared_console
    assert shared_console.complaints == []
    assert shared_console.elsewhere == []
