"""Folders that look like a fresh clone after `make setup`, in which a page's commands are run as pasted."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

_SETTINGS = (
    "COSMOS",
    "SQL",
    "SERVICEBUS",
    "RELAY_",
    "LOCAL_",
    "VIRTUAL_ENV",
    "FUNCTIONS_",
    "INBOX_",
    "CHANGEFEED_",
)


def make_clone(folder: Path) -> None:
    """Make the folder, with links to the project's files and to the virtual environment."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if not path.name.startswith(".") or path.name == ".ci":
            (folder / path.name).symlink_to(path)
    (folder / ".venv").symlink_to(sys.prefix)


def environment_of_a_newcomer() -> dict[str, str]:
    """Return the environment of this process, without settings and without the virtual environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    places = [each for each in kept["PATH"].split(os.pathsep) if not each.startswith(sys.prefix)]
    return kept | {"PATH": os.pathsep.join(places)}


def end_processes_of(folder: Path) -> None:
    """End the processes that work in this folder: those that a block has left in the background."""
    left = [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(folder)]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(left, timeout=WATCHDOG_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
