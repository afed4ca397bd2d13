"""The pictures of the documentation, made where CONSOLE_SCREENSHOTS names a folder (docs/images)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import expect

from tests.support.console_page import ConsolePage

FOLDER = os.environ.get("CONSOLE_SCREENSHOTS", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not FOLDER, reason="CONSOLE_SCREENSHOTS is not set"),
]


@pytest.mark.parametrize(
    ("name", "key", "scheme", "height"),
    [("flow", "", "light", 860), ("flow-dark", "", "dark", 860), ("key", "contact-1", "light", 720)],
)
async def test_pictures(
    console: ConsolePage, name: str, key: str, scheme: Literal["dark", "light"], height: int
) -> None:
    # Nothing moves, so that a picture changes only with the page.
    await console.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await console.page.set_viewport_size({"width": 1280, "height": height})

    page = await console.open(key)
    await expect(page.locator(".is-moving")).to_have_count(2)

    await page.screenshot(path=Path(FOLDER) / f"console-{name}.png", animations="disabled")
