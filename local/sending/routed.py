"""The rules of a running stack, as its relay reads them, for the events that `send` writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.sending.event import Event
from relay.config.settings import Settings
from relay.config.streams import APP, read_streams
from relay.core.documents import SourceDocument

STACK_APP = "LOCAL_STACK_APP"
"""The variable of a stack's env file that names the folder of its app, where relay.toml is."""


def streams_of(settings: Mapping[str, str]) -> list[Settings]:
    """Return the streams of the stack with these settings. Raises SettingsError."""
    return read_streams({**os.environ, **settings}, app=Path(settings.get(STACK_APP, APP)))


def event_type(streams: Sequence[Settings]) -> str:
    """Return the type of the documents that the first stream takes for events."""
    return streams[0].selection.type


def why_ignored(event: Event, streams: Sequence[Settings]) -> str | None:
    """Return why no stream takes an event; None if one takes it, or if that cannot be said."""
    stored, reasons = event.document(1), []
    for each in streams:
        selection = each.selection
        if selection.fields.is_mapped and each.sql is not None:
            return None  # what the columns will hold is known to the database alone
        if selection.document_of(stored) is not None:
            return None
        document = selection.mapped(stored) if selection.fields.is_mapped else SourceDocument.plain(stored)
        unmet = None if document is None else selection.unmet(document)
        if document is None:
            unmet = f"the type is {selection.types_text}"
        reasons.append(f"it is not so that {unmet}" if unmet else "no rule gives it to a destination")
    return reasons[0]
