"""Draws the diagrams of the pages with Mermaid in Chromium. Needs npm and its registry."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from docs.site.diagrams import FOLDER, SCHEMES, picture

if TYPE_CHECKING:
    from playwright.sync_api import Page

MERMAID = "mermaid@12.3.0"
_MODULE = "package/dist/mermaid.min.js"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DRAW = """async ([text, theme, edgeLabelBackground]) => {
    const themeVariables = { edgeLabelBackground };
    mermaid.initialize({ startOnLoad: false, theme, themeVariables, htmlLabels: false, fontFamily: "sans-serif",
                         handDrawnSeed: 1 });
    const element = document.createElement("div");
    element.innerHTML = (await mermaid.render("diagram", text)).svg;
    const drawn = element.firstElementChild;
    const [, , width, height] = drawn.getAttribute("viewBox").split(" ");
    drawn.setAttribute("width", Math.ceil(width));
    drawn.setAttribute("height", Math.ceil(height));
    return new XMLSerializer().serializeToString(drawn);
}"""
# More digits than a picture shows, and most of its size.
_DIGITS = re.compile(r"(\d\.\d)\d+")
# The theme of Mermaid, and the background of the site.
_THEMES = {"light": ("default", "#ffffff"), "dark": ("dark", "#131416")}


def diagrams(root: Path) -> Iterator[str]:
    """Yield the texts of all diagrams in tracked pages."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    for page in listed.splitlines():
        yield from _BLOCK.findall((root / page).read_text(encoding="utf-8"))


def fetch_mermaid(folder: Path) -> Path | None:
    """Get Mermaid from npm's registry; returns its script, or None if npm has reported an error."""
    command = ["npm", "pack", "--loglevel=error", MERMAID]
    if subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL, timeout=300).returncode:
        return None
    [archive] = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        files.extract(_MODULE, folder, filter="data")
    return folder / _MODULE


def draw(page: Page, root: Path, texts: list[str]) -> set[Path]:
    """Draw each text for each colour scheme; returns the files."""
    drawn = set()
    for text in texts:
        for scheme in SCHEMES:
            file = root / picture(text, scheme)
            file.parent.mkdir(exist_ok=True)
            svg = page.evaluate(_DRAW, [text, *_THEMES[scheme]])
            file.write_text(_DIGITS.sub(r"\1", svg) + "\n", encoding="utf-8")
            drawn.add(file)
    return drawn


def draw_all(root: Path) -> int:
    """Draw the diagrams of all pages, and remove the pictures of those that are gone; returns the exit code."""
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser_path is None or shutil.which("npm") is None:
        print("Chromium and npm draw the diagrams: install both, and try again.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        script = fetch_mermaid(Path(folder))
        if script is None:
            print(f"npm could not get {MERMAID}: its error is above.", file=sys.stderr)
            return 1
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=script)
        drawn = draw(page, root, list(diagrams(root)))
        browser.close()
    for file in set((root / FOLDER).glob("*.svg")) - drawn:
        file.unlink()
    print(f"Drew {len(drawn)} pictures in {FOLDER}")
    return 0
