"""The HTML of the console: the whole page, and the sections that the stream replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup

from relay.console import formats
from relay.console.checks import Checked
from relay.console.commands import Commands
from relay.console.extension import Extension, Slot
from relay.console.headline import headline
from relay.console.model import DeadLetterGroup, Partition, Snapshot, Timeline
from relay.console.settings import ConsoleSettings
from relay.console.steps import steps

SECTIONS = (
    "headline",
    "committed",
    "pipe_in",
    "accepted",
    "pipe_out",
    "subscriptions",
    "measures",
    "problems",
    "recent",
    "partitions",
    "quarantine",
    "dead_letters",
)
"""The parts of the page that are replaced one by one, by the names of their templates and of their SSE events."""

# More of them would make the page slow, and nobody reads them.
_MOST_PARTITIONS = 64
_MOST_GROUPS = 20

_FILTERS = (
    "clock",
    "count",
    "date",
    "iso",
    "key_path",
    "milliseconds",
    "rate",
    "short",
    "span",
    "visible",
    "written",
)


class Pages:
    """Renders the templates of the console and of its extensions."""

    def __init__(self, name: str, settings: ConsoleSettings, commands: Commands, extensions: Sequence[Extension]):
        """`name` is the topic's, for the title."""
        loaders = {each.name: FileSystemLoader(each.templates) for each in extensions}
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(Path(__file__).parent / "templates"), PrefixLoader(loaders)]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {each: getattr(formats, each) for each in _FILTERS}
        self._environment.globals |= {
            "name": name,
            "show_data": settings.show_data,
            "steps": steps,
            "commands": commands,
            "blocks": {slot: _blocks(slot, extensions) for slot in Slot},
            "styles": _statics(extensions, "style.css"),
            "scripts": _statics(extensions, "script.js"),
            "trace_address": lambda parent: formats.trace_address(parent, settings.trace_url),
        }
        self._number = -1
        self._sections: Mapping[str, str] = {}

    def fragment(self, template: str, **values: Any) -> str:
        """One template with these variables."""
        return self._environment.get_template(template).render(values)

    def sections(self, snapshot: Snapshot) -> Mapping[str, str]:
        """The HTML of each of SECTIONS. Every reader of one snapshot gets the same."""
        if snapshot.number != self._number:
            values = _values(snapshot)
            self._sections = {name: self.fragment(f"{name}.html", **values) for name in SECTIONS}
            self._number = snapshot.number
        return self._sections

    def totals(self, snapshot: Snapshot) -> str:
        """The totals in words, for screen readers."""
        return self.fragment("totals.html", flow=snapshot.flow)

    def timeline(self, timeline: Timeline) -> str:
        """The inside of a key's timeline."""
        return self.fragment("timeline.html", timeline=timeline)

    def page(
        self,
        snapshot: Snapshot,
        *,
        partition_key: str = "",
        timeline: str = "",
        checks: bool = False,
        check: Checked | None = None,
    ) -> str:
        """The whole page.

        Args:
            snapshot: What it shows.
            partition_key: The key whose timeline is open; empty where none is.
            timeline: The HTML of that timeline.
            checks: Whether there is a section for checks.
            check: The last result; None where there is none yet.
        """
        return self.fragment(
            "page.html",
            **_values(snapshot),
            sections={name: Markup(html) for name, html in self.sections(snapshot).items()},
            partition_key=partition_key,
            timeline=Markup(timeline),
            checks=checks,
            check=check,
        )


def _values(snapshot: Snapshot) -> dict[str, Any]:
    partitions = _shown(snapshot.partitions)
    groups: Sequence[DeadLetterGroup] = sorted(snapshot.dead_letters, key=lambda each: -each.count)[:_MOST_GROUPS]
    return {
        "snapshot": snapshot,
        "flow": snapshot.flow,
        "status": headline(snapshot),
        "partitions": partitions,
        "partitions_left": len(snapshot.partitions) - len(partitions),
        "dead_letters": groups,
        "dead_letters_left": len(snapshot.dead_letters) - len(groups),
    }


def _shown(partitions: Sequence[Partition]) -> Sequence[Partition]:
    """All of them in their order; of very many, those that are behind."""
    if len(partitions) <= _MOST_PARTITIONS:
        return partitions
    ranked = sorted(partitions, key=lambda each: (each.retry is None, -each.oldest_s, -each.behind))
    chosen = {each.name for each in ranked[:_MOST_PARTITIONS]}
    return [each for each in partitions if each.name in chosen]


def _blocks(slot: Slot, extensions: Sequence[Extension]) -> Sequence[str]:
    return [f"{each.name}/{each.blocks[slot]}" for each in extensions if slot in each.blocks]


def _statics(extensions: Sequence[Extension], file: str) -> Sequence[str]:
    return [f"/static/{each.name}/{file}" for each in extensions if each.static and (each.static / file).is_file()]
