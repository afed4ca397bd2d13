"""The documentation as a site, in a real browser: search, narrow screens, dark pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.browser import new_page
from tests.support.site import Quiet, build_site, write_tree

pytest.importorskip("sphinx", reason="Sphinx is not installed: `make docs DOCS=--build` installs it")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]

# What is wider than the screen, and has no parent that scrolls.
_TOO_WIDE = """() => [...document.querySelectorAll("article *")].filter(each => {
    if (each.getBoundingClientRect().right <= document.documentElement.clientWidth) return false;
    for (let parent = each; parent; parent = parent.parentElement)
        if (["auto", "scroll"].includes(getComputedStyle(parent).overflowX)) return false;
    return true;
}).map(each => each.outerHTML)"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    output: Path = tmp_path_factory.mktemp("site")
    assert build_site(write_tree(tmp_path_factory.mktemp("tree")), output) == (0, "")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(output / "html"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


async def test_a_search_finds_the_page_with_a_word(browser: Browser, address: str) -> None:
    page = await new_page(browser)
    await page.goto(address)

    await page.get_by_placeholder("Search").fill("parcel packed")
    await page.get_by_placeholder("Search").press("Enter")
    await page.locator("#search-results a").first.click()

    await expect(page.locator("h1")).to_contain_text("Orders")
    await page.context.close()


async def test_nothing_is_wider_than_a_phone(browser: Browser, address: str) -> None:
    page = await new_page(browser, viewport={"width": 390, "height": 800})
    elsewhere: list[str] = []
    page.on("request", lambda request: None if request.url.startswith(address) else elsewhere.append(request.url))

    for path in ("", "docs/orders.html", "docs/site/reference/shop.html"):
        await page.goto(address + path)
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert await page.evaluate(_TOO_WIDE) == [], path

    assert [url for url in elsewhere if not url.startswith("data:")] == []
    await page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_page_follows_the_readers_colour_scheme(browser: Browser, address: str, scheme: str) -> None:
    page = await new_page(browser, color_scheme="dark" if scheme == "dark" else "light")
    await page.goto(address + "docs/orders.html")

    background = await page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")

    assert (max(background) < 128) is (scheme == "dark")
    await expect(page.locator(f"img.only-{scheme}")).to_be_visible()
    await expect(page.locator("article img:visible")).to_have_count(1)
    await page.context.close()
