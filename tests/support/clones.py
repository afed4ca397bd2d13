"""Copies of the project: folders that look like a fresh clone, some of them after `make setup`."""

from __future__ import annotations

import os
import shutil
import subprocess
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


def copy_of_project(folder: Path, *, git: bool = False) -> Path:
    """Copy the files that git tracks, or would track, into a folder, and return it.

    Args:
        folder: Is made, with its parents.
        git: Whether the copy is a repository, too: some tests ask git which files there are.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (source := ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name)
    if git:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    return folder


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
