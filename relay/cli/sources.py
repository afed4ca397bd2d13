"""Which outbox a command works on."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import StrEnum

from relay.errors import UsageError
from relay.outbox import Outbox
from relay.settings import Settings


class SourceKind(StrEnum):
    """The outboxes that can be set."""

    COSMOS = "cosmos"
    SQL = "sql"


def add_source_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--source`."""
    parser.add_argument(
        "--source",
        type=_source,
        metavar="cosmos|sql",
        help="which outbox; needed where both COSMOS and SQL are set",
    )


def _source(text: str) -> SourceKind:
    if text not in list(SourceKind):
        raise argparse.ArgumentTypeError(f"{text!r} is not an outbox: write cosmos or sql")
    return SourceKind(text)


def choose_source(settings: Settings, wanted: SourceKind | None) -> SourceKind:
    """The outbox to work on.

    Raises:
        UsageError: The wanted one is not set, or both are set and none is wanted.
    """
    present = [SourceKind.COSMOS] if settings.cosmos is not None else []
    present += [SourceKind.SQL] if settings.sql is not None else []
    if wanted is None and len(present) == 1:
        return present[0]
    if wanted is None:
        raise UsageError("COSMOS and SQL are both set: add --source cosmos or --source sql")
    if wanted not in present:
        raise UsageError(f"--source {wanted}: {wanted.upper()} is not set")
    return wanted


def for_source(settings: Settings, kind: SourceKind) -> Settings:
    """The settings with this outbox alone."""
    return replace(settings, sql=None) if kind is SourceKind.COSMOS else replace(settings, cosmos=None)


@asynccontextmanager
async def closing(outbox: Outbox) -> AsyncIterator[Outbox]:
    """An outbox that is closed at the end of the block."""
    try:
        yield outbox
    finally:
        await outbox.close()
