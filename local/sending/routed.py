"""The outboxes of a running stack, as its relay reads them, for the events that `send` writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from local.sending.event import Event, WordError
from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.examples import Example, Unplaceable, example, in_layout
from relay.config.settings import Settings
from relay.config.streams import APP, read_streams
from relay.core.documents import SourceDocument
from relay.routes.selection import Selection

STACK_APP = "LOCAL_STACK_APP"
"""The variable of a stack's env file that names the folder of its app, where relay.toml is."""

# The value of a text that a rule or the layout asks for, and the event has not.
_SOME = "sent"


def streams_of(settings: Mapping[str, str]) -> list[Settings]:
    """Return the streams of the stack with these settings. Raises SettingsError."""
    return read_streams({**os.environ, **settings}, app=Path(settings.get(STACK_APP, APP)))


@dataclass(frozen=True, slots=True)
class Outbox:
    """An outbox of a stack.

    Attributes:
        streams: Those that read it, of which there is at least one.
    """

    streams: Sequence[Settings]

    @classmethod
    def of(cls, streams: Sequence[Settings], name: str | None = None) -> Outbox:
        """Return the outbox of this name, by default the first. Raises WordError if there is none."""
        names = list(dict.fromkeys(each.outbox for each in streams))
        if name is not None and name not in names:
            raise WordError(f"--outbox {name}: there is no such outbox; there are {', '.join(names)}.")
        return cls([each for each in streams if each.outbox == (name or names[0])])

    @property
    def settings(self) -> Settings:
        """The place and the layout of the outbox, which its streams share; the rest is that of the first."""
        return self.streams[0]

    @property
    def has_rows(self) -> bool:
        """True if it is an SQL one."""
        return open_backend(self.settings).has_rows

    @property
    def _is_row(self) -> bool:
        return self.has_rows and self.settings.selection.fields.names_fields

    def made(self, event: Event, sequence: int | None) -> Example:
        """Return an event as the outbox stores it, with the values that the rules ask for and it has not.

        Args:
            event: The event. Nothing of it is changed.
            sequence: Its number within its partition key; None for none.

        Raises:
            InvalidDocument: See `Event.document`.
            Unplaceable: The layout has one place for two of its fields.
        """
        document = event.document(sequence)
        if event.type is None:
            document["type"] = self.settings.selection.type
        first = self.settings.selection
        as_given = in_layout(document, first, is_row=self._is_row, some=_SOME)
        if any(_is_published(as_given.document, each.selection) for each in self.streams):
            return as_given
        # If no rule can take it, it has what makes it an event at all.
        for selection in (*(each.selection for each in self.streams), replace(first, routes=())):
            found = self._filled(document, selection)
            if found is not None and _has_all_of(found.document, event):
                return found
        return as_given

    def _filled(self, document: Mapping[str, Any], selection: Selection) -> Example | None:
        try:
            return example(document, selection, is_row=self._is_row, some=_SOME)
        except Unplaceable:
            return None

    def taker(self, document: SourceDocument) -> Settings | None:
        """Return the first stream that takes a document of this outbox, or None if none does."""
        return next((each for each in self.streams if each.selection.takes(document)), None)

    def why_ignored(self, document: SourceDocument) -> str | None:
        """Return why no stream publishes a document of this outbox, or None if one does."""
        if any(_is_published(document, each.selection) for each in self.streams):
            return None
        unmet = self.settings.selection.unmet(document)
        return f"it is not so that {unmet}" if unmet else "no rule gives it to a destination"


def _is_published(document: SourceDocument, selection: Selection) -> bool:
    """Return True if a stream takes a document, and not only to set it aside because no rule does."""
    return selection.takes(document) and (not selection.routes or selection.route_of(document) is not None)


def _has_all_of(document: SourceDocument, event: Event) -> bool:
    """Return True if a document has all that its event has."""
    fields, data = document.fields, document.fields.get("data")
    return (
        isinstance(data, Mapping)
        and event.data.items() <= data.items()
        and (fields.get("partitionKey"), document.action) == (event.partition_key, event.action)
        and event.type in (None, fields.get("type"))
    )
