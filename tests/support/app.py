"""Copies of the function app with a safeguard taken out, to see that the tests would notice."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def copy_app(folder: Path) -> Path:
    """The app as it is deployed, in a folder of its own."""
    folder.mkdir()
    for name in ("function_app.py", "host.json"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "relay", folder / "relay", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def without_retry_policy(folder: Path) -> Path:
    """The app without `@app.retry`."""
    source = (folder / "function_app.py").read_text()
    changed = re.sub(r"@app\.retry\(.*?\n\)\n", "", source, flags=re.DOTALL)
    assert changed != source
    (folder / "function_app.py").write_text(changed)
    return folder


def without_date_setting(folder: Path) -> Path:
    """The app without `dateParseHandling` in host.json."""
    host = json.loads((folder / "host.json").read_text())
    del host["extensions"]["cosmosDB"]["serializerSettings"]["dateParseHandling"]
    (folder / "host.json").write_text(json.dumps(host))
    return folder
