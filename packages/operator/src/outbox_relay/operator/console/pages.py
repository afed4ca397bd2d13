"""The HTML of the console: the whole page, its charts, and the sections that the stream replaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import Any
from urllib.parse import SplitResult, urlsplit

from jinja2 import BytecodeCache, ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from outbox_relay.operator.console import formatting
from outbox_relay.operator.console.content import shows_data
from outbox_relay.operator.console.formatting import count, rate, span
from outbox_relay.operator.console.freshness import FIGURES
from outbox_relay.operator.console.history import SLOTS, History
from outbox_relay.operator.console.model import Checked, Partition, Snapshot, Timeline
from outbox_relay.operator.console.overview import StreamState, StreamView, overall, path_of
from outbox_relay.operator.console.page_query import EVERYTHING, STAGES, PageQuery, selection
from outbox_relay.operator.console.ports import Extension
from outbox_relay.operator.console.status import headline, is_unowned, stale_since
from outbox_relay.operator.console.timeline import steps
from outbox_relay.operator.reasons import QUARANTINE, RUNBOOK, STATES, may_be_released
from relay import __version__
from relay.config.secrecy import quoted
from relay.core.errors import SettingsError
from relay.core.remedy import render

HEIGHT = 40
"""Height of a chart, in units of its view box, whose width is one unit for each slot."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over the last hour.

    Attributes:
        most: The largest value in words, which is at the top of the chart; empty if nothing is known.
        unobserved: For how long nothing was observed, in words; empty if never.
        line, gaps: Path data of SVG: the values, and the times at which nothing was observed.
    """

    title: str
    most: str
    unobserved: str
    line: str
    gaps: str


def charts(history: History) -> Sequence[Chart]:
    """Return the charts of rate, lag and failures."""
    return [
        _chart("Accepted a second", history.published_s, history.slot_s, rate),
        _chart("Lag", history.lag_s, history.slot_s, span),
        _chart("In quarantine", history.quarantined, history.slot_s, _whole),
        _chart("Dead letters", history.dead_lettered, history.slot_s, _whole),
    ]


def _chart(title: str, known: Values, slot_s: int, write: Callable[[float], str]) -> Chart:
    values = [*[None] * (SLOTS - len(known)), *known]
    most = max((each for each in values if each is not None), default=None)
    missing = values.count(None) * slot_s
    return Chart(
        title,
        "" if most is None else write(most),
        span(missing) if missing else "",
        "".join(_line(start, run, most or 1.0) for start, run in _runs(values) if run[0] is not None),
        "".join(f"M{start} 0h{len(run)}v{HEIGHT}h-{len(run)}z" for start, run in _runs(values) if run[0] is None),
    )


def _runs(values: Values) -> Iterator[tuple[int, Values]]:
    """Yield the runs of known and of unknown values, each with its first slot."""
    start = 0
    for _, group in groupby(values, key=lambda each: each is None):
        run = list(group)
        yield start, run
        start += len(run)


def _line(start: int, run: Values, most: float) -> str:
    """Return the path of a run: level in each slot, so that nothing between two values is made up."""
    heights = [HEIGHT - round(HEIGHT * max(each or 0.0, 0.0) / most, 1) for each in run]
    steps, slot = [f"M{start} {heights[0]:g}"], start
    for height, group in groupby(heights):
        slot += len(list(group))
        steps.append(f"V{height:g}H{slot}")
    return "".join(steps)


def _whole(number: float) -> str:
    return count(round(number))


_FLOW = ("committed", "pipe_in", "accepted", "pipe_out", "subscriptions", "measures")
_QUARANTINE = ("selection", "quarantine", "removals")
SECTIONS = ("headline", *_FLOW, "history", "problems", "recent", "partitions", *_QUARANTINE, "dead_letters")
"""The parts of the page that are replaced one by one, by the names of their templates and of their SSE events."""

# The parts that depend on the query of the page's address.
_OF_QUERY = ("recent", "selection", "quarantine")

PLACES = ("top", "subscription", "quarantine_group", "quarantine_record")
"""The places for a block: before the first section, where forms keep their text, as the stream replaces nothing;
with each `subscription`; with each reason in quarantine, as `group`; with each `record` that is shown."""

# More of them would make the page slow, and are never read.
_MOST_PARTITIONS = 64
_MOST_GROUPS = 20

_NUMBERS = ("count", "milliseconds", "rate", "span")
_TIMES = ("clock", "date", "iso", "written")
_TEXTS = ("lines", "marked", "prose", "sentence", "short", "visible")
_FILTERS = (*_NUMBERS, *_TIMES, *_TEXTS, "commands_in", "set_aside_commands")

_TRACE_ID = "{trace_id}"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Optional parts of the page.

    Attributes:
        trace_url: Address of a trace, with `{trace_id}` for its id.
        show_data: True to show the data of events and the content of dead letters.
        runbook_url: Address of a copy of docs/runbook.md, whose sections the page links to.
    """

    trace_url: str | None = None
    show_data: bool = False
    runbook_url: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ConsoleSettings:
        """Read and check CONSOLE_TRACE_URL, CONSOLE_SHOW_DATA and CONSOLE_RUNBOOK_URL.

        A blank value counts as not set.

        Raises:
            SettingsError: Naming everything that is wrong.
        """
        problems = []
        trace_url = environment.get("CONSOLE_TRACE_URL", "").strip() or None
        if trace_url is not None and not _is_template(trace_url):
            problems.append(
                f"CONSOLE_TRACE_URL is {quoted(trace_url)}: set an https:// or http:// address that contains "
                f"{_TRACE_ID} after the host"
            )
        show_data = False
        try:
            show_data = shows_data(environment)
        except SettingsError as error:
            problems += error.problems
        runbook_url = environment.get("CONSOLE_RUNBOOK_URL", "").strip() or None
        if runbook_url is not None and not _is_page(runbook_url):
            problems.append(
                f"CONSOLE_RUNBOOK_URL is {quoted(runbook_url)}: set the https:// or http:// address of a copy of "
                "docs/runbook.md, without '#'"
            )
        if problems:
            raise SettingsError(problems)
        return cls(trace_url, show_data, runbook_url)

    def trace_address(self, traceparent: str | None) -> str | None:
        """Return the address of an event's trace.

        It is None without CONSOLE_TRACE_URL, or without a trace in W3C's format.

        https://www.w3.org/TR/trace-context/#traceparent-header
        """
        found = _TRACEPARENT.fullmatch(traceparent or "")
        if self.trace_url is None or found is None:
            return None
        return self.trace_url.replace(_TRACE_ID, found["trace"])

    def runbook_address(self, section: str) -> str | None:
        """Return the address of a section of the runbook; None without CONSOLE_RUNBOOK_URL."""
        return None if self.runbook_url is None else f"{self.runbook_url}#{section}"


class _CompiledTemplates(BytecodeCache):
    """Keeps the code of each template in memory: the pages of all streams have the same templates."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _CompiledTemplates()


class Pages:
    """Renders the templates of the console and of its extensions."""

    def __init__(
        self,
        name: str,
        settings: ConsoleSettings,
        commands: formatting.Commands,
        extensions: Sequence[Extension],
        streams: Sequence[StreamView] = (),
        stream: str | None = None,
    ):
        """Load the templates.

        `name` is the topic's, for the title; `stream` that of the page's stream, among `streams`.
        """
        base = "" if stream is None else path_of(stream)
        self.root = f"{base}/"
        loaders = {each.name: FileSystemLoader(each.templates) for each in extensions}
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(Path(__file__).parent / "templates"), PrefixLoader(loaders)]),
            autoescape=True,
            undefined=StrictUndefined,
            bytecode_cache=_COMPILED,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {each: getattr(formatting, each) for each in _FILTERS}
        self._environment.filters["rendered"] = partial(render, by=commands.by)
        self._environment.filters["advice"] = partial(formatting.advice, by=commands.by)
        self._environment.filters["key_path"] = lambda key: f"{base}{formatting.key_path(key)}"
        self._environment.globals |= {
            "base": base,
            "paths": {each.name: f"{path_of(each.name)}/" for each in streams},
            "stream": stream,
            "name": name,
            "show_data": settings.show_data,
            "steps": steps,
            "charts": charts,
            "selection": partial(selection, commands=commands),
            "can_be_released": may_be_released,
            "commands": commands,
            "is_unowned": is_unowned,
            "reasons": QUARANTINE,
            "states": STATES,
            "blocks": {slot: _blocks(slot, extensions) for slot in PLACES},
            "styles": _statics(extensions, "style.css"),
            "scripts": _statics(extensions, "script.js"),
            "trace_address": settings.trace_address,
            "runbook_address": settings.runbook_address,
            "sections_of_runbook": RUNBOOK,
            "version": __version__,
        }
        self._numbers: Sequence[int] = ()
        self._sections: Mapping[str, str] = {}

    def fragment(self, template: str, **values: Any) -> str:
        """Render one template with these variables."""
        return self._environment.get_template(template).render(values)

    def timeline(self, timeline: Timeline) -> str:
        """Return the HTML of a key's timeline."""
        return self.fragment("timeline.html", timeline=timeline)

    def totals(self, snapshot: Snapshot) -> str:
        """Return the totals in a sentence, for users of a screen reader."""
        return self.fragment("totals.html", **_values(snapshot))

    def sections(self, snapshot: Snapshot, query: PageQuery = EVERYTHING) -> Mapping[str, str]:
        """Return the HTML of each of SECTIONS: the same for every reader of one snapshot without a query."""
        found = self._shared_sections(snapshot)
        if not query:
            return found
        values = _values(snapshot, query)
        return {**found, **{name: self.fragment(f"{name}.html", **values) for name in _OF_QUERY}}

    def _shared_sections(self, snapshot: Snapshot) -> Mapping[str, str]:
        if self._numbers != [snapshot.number]:
            values = _values(snapshot)
            self._sections = {name: self.fragment(f"{name}.html", **values) for name in SECTIONS}
            self._numbers = [snapshot.number]
        return self._sections

    def overview_sections(self, states: Sequence[StreamState]) -> Mapping[str, str]:
        """Return the HTML of each part of the page of all streams that is replaced. Every reader gets the same."""
        numbers = [each.snapshot.number for each in states]
        if numbers != self._numbers:
            status, stale = overall(states), _stale_of(states)
            self._sections = {
                "headline": self.fragment("overview_headline.html", status=status, stale_since=stale),
                "streams": self.fragment("streams.html", states=states),
            }
            self._numbers = numbers
        return self._sections

    def overview(self, states: Sequence[StreamState], checks: bool, check: Checked | None) -> str:
        """Return the whole page of all streams, with the last result of a check, if any."""
        sections = {name: Markup(html) for name, html in self.overview_sections(states).items()}
        return self.fragment(
            "overview.html", sections=sections, partition_key="", address_query="", checks=checks, check=check
        )

    def page(
        self,
        snapshot: Snapshot,
        partition_key: str,
        timeline: str,
        checks: bool,
        check: Checked | None,
        query: PageQuery = EVERYTHING,
    ) -> str:
        """Return the whole page, with the HTML of the open timeline and the last result of a check, if any."""
        return self.fragment(
            "page.html",
            **_values(snapshot, query),
            sections={name: Markup(html) for name, html in self.sections(snapshot, query).items()},
            stages=STAGES,
            address_query=query.encoded(partition_key),
            partition_key=partition_key,
            timeline=Markup(timeline),
            checks=checks,
            check=check,
        )


def _values(snapshot: Snapshot, query: PageQuery = EVERYTHING) -> dict[str, Any]:
    partitions = _shown(snapshot.partitions)
    groups = sorted(snapshot.dead_letters, key=lambda each: -each.count)[:_MOST_GROUPS]
    return {
        "snapshot": snapshot,
        "query": query,
        "recent": query.events.chosen(snapshot).recent,
        "searched": len(snapshot.recent) + len(snapshot.earlier),
        "flow": snapshot.flow,
        "no_latency": snapshot.no_latency,
        "known": {figure: snapshot.known_of(figure) for figure in FIGURES},
        "status": headline(snapshot),
        "stale_since": stale_since(snapshot),
        "partitions": partitions,
        "partitions_left": len(snapshot.partitions) - len(partitions),
        "dead_letters": groups,
        "dead_letters_left": len(snapshot.dead_letters) - len(groups),
    }


def _stale_of(states: Sequence[StreamState]) -> str:
    """Describe which streams are not current; empty if all are."""
    stale = [each.name for each in states if each.stale_since]
    if len(stale) == 1:
        return f"{stale[0]}: {next(each.stale_since for each in states if each.stale_since)}"
    return f"{len(stale)} streams are not current" if stale else ""


def _shown(partitions: Sequence[Partition]) -> Sequence[Partition]:
    """Return all streams in their order; of very many, those that are behind."""
    if len(partitions) <= _MOST_PARTITIONS:
        return partitions
    ranked = sorted(partitions, key=lambda each: (each.retry is None, -each.oldest_s, -each.behind))
    chosen = {each.name for each in ranked[:_MOST_PARTITIONS]}
    return [each for each in partitions if each.name in chosen]


def _blocks(slot: str, extensions: Sequence[Extension]) -> Sequence[str]:
    file = f"{slot}.html"
    return [f"{each.name}/{file}" for each in extensions if (each.templates / file).is_file()]


def _statics(extensions: Sequence[Extension], file: str) -> Sequence[str]:
    return [f"/static/{each.name}/{file}" for each in extensions if each.static and (each.static / file).is_file()]


def _is_template(text: str) -> bool:
    parts = _address(text)
    return parts is not None and _TRACE_ID in text and _TRACE_ID not in parts.netloc


def _is_page(text: str) -> bool:
    return _address(text) is not None and "#" not in text


def _address(text: str) -> SplitResult | None:
    """Return the parts of an address of the web; None for any other text."""
    try:
        parts = urlsplit(text)
    except ValueError:  # such as a bracket that does not close
        return None
    named = parts.scheme in ("http", "https") and parts.hostname is not None
    # Whoever opens the page would see a user and password.
    return parts if named and "@" not in parts.netloc else None
