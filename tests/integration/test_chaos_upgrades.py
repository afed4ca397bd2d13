"""Campaigns in which processes of this release are replaced by the next one's, whose records have another format.

The next release is a copy of the project, changed on purpose. Operators run its commands from the beginning.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from local.chaos.command import ERRORS
from local.stack.parts import ROOT
from tests.support.campaigns import campaign
from tests.support.clones import copy_of_project
from tests.support.watchdog import CAMPAIGN

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

HOSTS = 2
OPTIONS = (
    *("--seed", "1", "--events", "600", "--rate", "20", "--hosts", str(HOSTS), "--consumers", "16"),
    *("--from", str(ROOT), "--on-poison", "park", "--faults", "6", "--once"),
)

WRITES = ('        "document": stored,\n', '        "document": {"stored": stored},\n')
VERSION = ("_VERSION = 2\n", "_VERSION = 3\n")
READS_BOTH = (
    "        if version != _VERSION:\n",
    '        if version == 3:\n            document = document["stored"]\n        if version not in (2, 3):\n',
)
REFUSES_OLD = (READS_BOTH[0], '        if version != 3:\n            raise LaterRecord("another version")\n')


def next_release(folder: Path, *changes: tuple[str, str]) -> Path:
    """Make the release after this one, in which records of the quarantine are stored in another way."""
    record = copy_of_project(folder) / "relay" / "quarantine" / "record.py"
    text = record.read_text(encoding="utf-8")
    for old, new in (VERSION, WRITES, *changes):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    record.write_text(text, encoding="utf-8")
    return folder


@CAMPAIGN
@pytest.mark.parametrize(
    ("source", "kinds"),
    [("cosmos", "kill-host,kill-machine,drop-after,freeze-host"), ("sql", "kill-relay,stop-relay,kill-backend")],
)
async def test_a_rolling_upgrade_with_another_format_ends_in_zeros(
    tmp_path: Path, source: str, kinds: str
) -> None:
    following = next_release(tmp_path / "next", READS_BOTH)

    code, summary, errors = await campaign(
        tmp_path, *OPTIONS, "--source", source, "--only", kinds, "--patience", "120", project=following
    )

    assert {name: summary[name] for name in ERRORS} == dict.fromkeys(ERRORS, 0), errors
    assert (code, summary["live"]) == (0, True), errors
    assert summary["quarantined"] == summary["expected_quarantined"]
    assert summary["commands"]["release"] > 0
    assert summary["upgrades"] == {"upgraded": 2 * HOSTS, "rolled back": HOSTS}


@CAMPAIGN
async def test_a_campaign_detects_that_the_records_of_the_earlier_release_cannot_be_read(tmp_path: Path) -> None:
    following = next_release(tmp_path / "next", REFUSES_OLD)

    code, summary, errors = await campaign(
        tmp_path, *OPTIONS, "--only", "kill-host", "--patience", "8", project=following
    )

    assert code == 1, errors
    assert not summary["live"]
    assert summary["quarantined"] > summary["expected_quarantined"]
