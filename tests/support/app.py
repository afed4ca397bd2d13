"""Copies of the function app, as it is deployed or with a safeguard taken out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support import weakened

ROOT = Path(__file__).resolve().parents[2]

_WEAKENED = """
from weakened import {safeguards}

for take_out in ({safeguards},):
    take_out()

from deployed import app  # noqa
"""


def copy_app(folder: Path, *without: str) -> Path:
    """The app in its own folder.

    Args:
        folder: The copy's folder; it must not exist.
        without: Names of functions of `tests.support.weakened`: the safeguards to take out.
    """
    folder.mkdir()
    shutil.copy(ROOT / "host.json", folder)
    # With what is compiled, which each worker would compile anew, but for what another process is about to write.
    shutil.copytree(ROOT / "relay", folder / "relay", ignore=shutil.ignore_patterns("*.pyc.*"))
    if without:
        shutil.copy(ROOT / "function_app.py", folder / "deployed.py")
        shutil.copy(weakened.__file__, folder)
        (folder / "function_app.py").write_text(_WEAKENED.format(safeguards=", ".join(without)))
    else:
        shutil.copy(ROOT / "function_app.py", folder)
    return folder


def without_date_setting(folder: Path) -> Path:
    """Remove `dateParseHandling` from the host.json of an app; returns its folder."""
    host = json.loads((folder / "host.json").read_text())
    del host["extensions"]["cosmosDB"]["serializerSettings"]["dateParseHandling"]
    (folder / "host.json").write_text(json.dumps(host))
    return folder
