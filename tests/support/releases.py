"""The next release, whose records of the quarantine have another format: a copy of the project, changed."""

from __future__ import annotations

from pathlib import Path

from tests.support.clones import copy_of_project

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
