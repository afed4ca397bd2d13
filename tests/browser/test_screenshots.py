"""The pictures of the documentation.

CONSOLE_SCREENSHOTS=docs/images makes them anew. Otherwise they are made in a folder of the test, and not compared:
fonts and colours differ between machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from outbox_relay.operator.console.application import application_of_streams
from outbox_relay.operator.console.model import Problem, Snapshot, Stage, Timeline
from outbox_relay.operator.console.overview import StreamView
from outbox_relay.operator.console.server import loopback, serving
from outbox_relay.operator.outcomes import Outcome
from tests.support.browser import new_page
from tests.support.console_page import SHOWN, Checker, ConsolePage, console_page
from tests.support.console_states import states
from tests.support.console_view import NOON, InMemoryView, busy, committed, delivered, history, removed, tracked

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder that the pictures are saved in."""
    return Path(os.environ.get("CONSOLE_SCREENSHOTS") or tmp_path)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page, or of a part of it.

    Attributes:
        state: The state that the page shows.
        key: The key whose timeline is open; empty for none.
        part: A selector of the part; the window otherwise.
        opened: Selectors of what is clicked first.
        shows: A text that the page has before the picture is made.
    """

    state: Callable[[], Snapshot] = busy
    key: str = ""
    scheme: Literal["dark", "light"] = "light"
    height: int = 860
    part: str = ""
    opened: tuple[str, ...] = ()
    shows: str = ""


def _owner_gone() -> Snapshot:
    calm = busy()
    return replace(calm, partitions=[replace(calm.partitions[0], held_s=21), *calm.partitions[1:]])


def _stale() -> Snapshot:
    said = "the container 'data' cannot be read: the account refuses the connection. Check COSMOS."
    return replace(states()["the source is down"], problems=[Problem("outbox", said)])


def _of_an_operator(outcome: Outcome, why: str) -> Timeline:
    events = [committed(number, "contact-7") for number in (1, 2)]
    removal = replace(removed(2, outcome, why=why).removal, at="2026-02-09T11:36:59.250000+00:00")
    stage = Stage.PUBLISHED if outcome is Outcome.RELEASED else Stage.DISCARDED
    accepted_at = NOON + 420 if outcome is Outcome.RELEASED else None
    of_second = tracked(events[1], stage, removed=removal, published_at=accepted_at)
    return Timeline("contact-7", [tracked(events[0], deliveries=[delivered(events[0])]), of_second])


PICTURES = {
    "flow": Picture(),
    "flow-dark": Picture(scheme="dark"),
    "key": Picture(key="contact-1", height=720),
    "released": Picture(key="contact-7", part="#timeline", shows="Released"),
    "discarded": Picture(key="contact-7", part="#timeline", shows="Discarded"),
    "owner-gone": Picture(_owner_gone, height=520, shows="is gone"),
    "stale": Picture(_stale, height=520, shows="It is not known since"),
    "quarantine": Picture(part="#quarantine", opened=("#quarantine summary",), shows="message-too-large"),
    "dead-letters": Picture(
        part="#dead-letters",
        opened=("#dead-letters summary", "#dead-letters .data summary"),
        shows="12 Elm Street",
    ),
}


@pytest.mark.parametrize("name", PICTURES)
async def test_pictures(browser: Browser, name: str, folder: Path) -> None:
    picture = PICTURES[name]
    async with console_page(browser) as console:
        if name in ("released", "discarded"):
            console.view.timelines["contact-7"] = _of_an_operator(Outcome(name), "the size limit was raised")
        # Nothing moves, so that a picture changes only with the page.
        await console.page.emulate_media(color_scheme=picture.scheme, reduced_motion="reduce")
        await console.page.set_viewport_size({"width": 1280, "height": picture.height})
        await console.view.show(picture.state())

        page = await console.open(picture.key)
        for selector in picture.opened:
            await page.locator(selector).first.click()
        await expect(page.locator(picture.part or "body")).to_contain_text(picture.shows)

        path = folder / f"console-{name}.png"
        if picture.part:
            await page.locator(picture.part).screenshot(path=path, animations="disabled")
        else:
            await page.screenshot(path=path, animations="disabled")
        assert (console.complaints, console.elsewhere) == ([], [])


async def test_picture_of_several_streams(browser: Browser, folder: Path) -> None:
    views = {
        "default": InMemoryView(busy()),
        "orders": InMemoryView(_stale(), [history()]),
        "audit": InMemoryView(busy()),
    }
    streams = [StreamView(name, "container 'data'", f"topic '{name}'", view) for name, view in views.items()]
    app = application_of_streams(streams, loopback, settings=SHOWN, check=Checker())
    page = await new_page(browser, viewport={"width": 1280, "height": 520}, reduced_motion="reduce")
    async with serving(app, "127.0.0.1", 0) as address:
        console = ConsolePage(views["default"], page, address, Checker())
        page = await console.open()
        await expect(page.locator("body")).to_contain_text("It is not known since")
        path = folder / "console-streams.png"
        await page.screenshot(path=path, animations="disabled")
        await page.context.close()


async def test_each_picture_of_the_documentation_is_made_here() -> None:
    made = {f"console-{name}.png" for name in (*PICTURES, "streams")}

    assert {path.name for path in IMAGES.glob("console-*.png")} == made
