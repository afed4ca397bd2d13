"""The libraries as their users install them: programs that can import a wheel, but nothing of this repository."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

ENVIRONMENTS = "RELEASE_ENVIRONMENTS"
"""Environment variable: a folder with an environment for each library, in which its wheel is installed."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A library's wheel, installed.

    Attributes:
        file: The wheel itself.
        site: The folder with its modules.
        python: The Python that has the packages it needs.
        scripts: The folder with its commands.
    """

    file: Path
    site: Path
    python: str
    scripts: Path

    def program(self, text: str, *arguments: str) -> list[str]:
        """Return the command that runs a program with these arguments."""
        # The development installation is on the path too, and must come later.
        return [self.python, "-I", "-c", f"import sys\nsys.path[:0] = [{str(self.site)!r}]\n{text}", *arguments]

    def script(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its commands."""
        return subprocess.run(
            [self.scripts / name, *arguments],
            cwd=self.site,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.site)},
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
            check=False,
        )


def build(library: str, folder: Path) -> Wheel:
    """Build the wheel of a folder of the repository, such as `packages/inbox`, and install it.

    It is alone in `folder`, and run by this process's Python, which has the packages that it needs. Where
    `RELEASE_ENVIRONMENTS` is set, it is the one that is installed in the environment of its name there.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / library, check=True, capture_output=True, timeout=WATCHDOG_S)
    (file,) = folder.glob("*.whl")
    environments = os.environ.get(ENVIRONMENTS)
    if environments and (python := Path(environments, Path(library).name, "bin", "python")).exists():
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
        return Wheel(file, Path(site), str(python), python.parent)
    site_folder = folder / "installed"
    target = ["--target", str(site_folder), "--no-compile"]
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", *target, str(file)]
    subprocess.run(install, check=True, capture_output=True, timeout=WATCHDOG_S)
    return Wheel(file, site_folder, sys.executable, site_folder / "bin")
