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


def without_waiting_for_acceptance(folder: Path) -> Path:
    """The app whose partitions send every other event over a second sender, neither waiting for the other."""
    path = folder / "relay" / "publisher.py"
    source = path.read_text()
    waiting = (
        "            async with self._pool.borrow() as sender:\n"
        "                await _PartitionSender(\n"
        "                    sender, self._encode, self._ledger, self._send_timeout_s, outcome\n"
        "                ).send_in_order(pending)\n"
    )
    at_once = (
        "            async with self._pool.borrow() as one, self._pool.borrow() as other:\n"
        "                await asyncio.gather(*(\n"
        "                    _PartitionSender(\n"
        "                        sender, self._encode, self._ledger, self._send_timeout_s, outcome\n"
        "                    ).send_in_order(half)\n"
        "                    for sender, half in ((one, pending[::2]), (other, pending[1::2]))\n"
        "                    if half\n"
        "                ))\n"
    )
    assert waiting in source
    path.write_text(source.replace(waiting, at_once))
    return folder
