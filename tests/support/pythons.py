"""The Pythons of this machine on which tests are repeated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def other_pythons() -> list[str]:
    """Return the oldest supported Python and the newest one that can be run, except this process's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {}
    for minor in range(11, 20):
        name = f"python3.{minor}"
        for python in filter(
            None, (shutil.which(name), *map(str, sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}"))))
        ):
            if subprocess.run([python, "-c", "import ensurepip, ssl"], capture_output=True).returncode == 0:
                found[minor] = python
                break
    ends = sorted({*sorted(found)[:1], *sorted(found)[-1:]} - {sys.version_info.minor})
    return [found[minor] for minor in ends]
