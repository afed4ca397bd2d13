"""What another part of the project adds to the page: blocks in its sections, and routes beside its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from aiohttp import web


class Slot(StrEnum):
    """Where a block can stand, and which variables its template has beside those of the page."""

    TOP = "top"
    """Before the first section. It is not replaced by the stream: forms keep what was typed."""
    SUBSCRIPTION = "subscription"
    """In the row of each subscription: `subscription`."""
    PARTITION = "partition"
    """In the row of each partition: `partition`."""
    QUARANTINE_GROUP = "quarantine_group"
    """With each reason in quarantine: `group`."""
    QUARANTINE_RECORD = "quarantine_record"
    """With each record shown: `record`."""
    TIMELINE = "timeline"
    """In the head of a key's timeline: `timeline`."""


@dataclass(frozen=True, slots=True)
class Extension:
    """Blocks and routes.

    Attributes:
        name: Of the part: its templates are included as `name/file.html`.
        templates: The folder of its templates.
        blocks: Which template stands in which slot, such as {Slot.TOP: "send.html"}.
        routes: Its routes. A handler makes its HTML with `request.app[PAGES].fragment("name/file.html", …)`.
        static: A folder that is served as `/static/name/`; None for none. `style.css` and `script.js` in it are
            included in the page.
    """

    name: str
    templates: Path
    blocks: Mapping[Slot, str] = field(default_factory=dict)
    routes: Sequence[web.AbstractRouteDef] = ()
    static: Path | None = None
