"""Journals as files, compressed if their name ends with .gz."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from verification.journal.entries import Entry, parse


def load(path: Path) -> list[Entry]:
    """Load the entries of a journal. Raises JournalError, which names the line, and OSError."""
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return list(parse(lines))
    with path.open(encoding="utf-8") as lines:
        return list(parse(lines))


def save(path: Path, journal: Iterable[Entry]) -> None:
    """Write a journal; an existing file is replaced."""
    text = "".join(f"{entry.to_line()}\n" for entry in journal)
    if path.suffix == ".gz":
        # Without a time, the same journal is the same file.
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text, encoding="utf-8")
