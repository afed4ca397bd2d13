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
    return _changed(
        folder / "relay" / "publisher.py",
        "            async with self._pool.borrow() as sender:\n"
        "                turn = Turn(sender, self._encode, self._ledger, self._evidence, rules, outcome)\n"
        "                await turn.send_in_order(pending)\n",
        "            async with self._pool.borrow() as one, self._pool.borrow() as other:\n"
        "                await asyncio.gather(*(\n"
        "                    Turn(sender, self._encode, self._ledger, self._evidence, rules, outcome)"
        ".send_in_order(half)\n"
        "                    for sender, half in ((one, pending[::2]), (other, pending[1::2]))\n"
        "                    if half\n"
        "                ))\n",
    )


def without_discarding_senders(folder: Path) -> Path:
    """The app that uses a link again after a send on it has failed."""
    return _changed(
        folder / "relay" / "senders.py",
        "        self._link = self._limits = None\n\n    async def close",
        "\n    async def close",
        "        if self._link is not None:\n            self._pool.give_up(self._link)\n",
        '        """Keep it."""\n',
    )


def without_order_within_a_commit(folder: Path) -> Path:
    """The app that takes the documents of a transaction in the order in which the change feed has them."""
    return _changed(folder / "relay" / "selection.py", "enumerate(in_commit_order(chosen))", "enumerate(chosen)")


def without_doubt(folder: Path) -> Path:
    """The app that quarantines whatever is refused, at once, and however many keys are refused alike."""
    _changed(folder / "relay" / "turn.py", "            self._require_evidence(event, refusal)\n", "")
    return _changed(folder / "relay" / "pipeline.py", "            self._brake.judge(published)\n", "")


def _changed(path: Path, *replacements: str) -> Path:
    """Replace each first of two texts by the second; returns the app's folder."""
    source = path.read_text()
    for old, new in zip(replacements[::2], replacements[1::2], strict=True):
        assert old in source, f"{path.name} does not hold {old!r} any more"
        source = source.replace(old, new)
    path.write_text(source)
    return path.parents[1]
