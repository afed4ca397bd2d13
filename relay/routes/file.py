"""The file relay.toml: outboxes, destinations and routes, read and checked. docs/routes.md describes it.

`docs/contract/relay.schema.json` is its JSON Schema; a test holds this module to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relay.config.clients import ENTITY, ENTITY_FORM
from relay.config.secrecy import hidden, looks_secret, quoted
from relay.core.errors import SettingsError
from relay.routes.conditions import Condition, Scalar
from relay.routes.mapping import (
    BROKERS_PROPERTIES,
    LAYOUTS,
    MESSAGE,
    NAMES,
    OWN_PROPERTIES,
    PLAIN,
    TYPES,
    Fields,
    Property,
)
from relay.routes.pointers import Pointer
from relay.routes.selection import DEFAULT, Route

FILE = "relay.toml"

# A name is in lease ids and in names of containers, tables and indexes, and `outbox-destination` has to be unique.
# With two of this length, an index has the 63 bytes that PostgreSQL keeps of a name.
_NAME = re.compile(r"[a-z][a-z0-9]{0,23}")
_SETTING = re.compile(r"[A-Z][A-Z0-9_]*")
_TABLE = re.compile(r"[^.]+\..+")
# A text has a character that can be seen.
_VISIBLE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]")

UNROUTED = ("quarantine", "ignore")
CHANGED_RULES = ("unread", "later")


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic or queue.

    Attributes:
        name: Its name in the file.
        entity: The topic's or queue's name; None for SERVICEBUS_TOPIC.
        is_queue: Whether it is a queue.
        connection: The setting that says how to reach its namespace.
        duplicate_window_s: Its duplicate detection window, in seconds; None for RELAY_DUPLICATE_WINDOW_S.
    """

    name: str
    entity: str | None = None
    is_queue: bool = False
    connection: str = "SERVICEBUS"
    duplicate_window_s: float | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """An outbox: a container of Cosmos DB, or an SQL feed; where these are None, the environment names them.

    Attributes:
        name: Its name in the file.
        container, database, lease_container, quarantine_container: Of Cosmos DB; None for the environment's.
        feed, shards: Of SQL; None for the environment's.
        types: The types of the documents that are events, none if all are; None for RELAY_EVENT_TYPE.
        events: Further conditions for a document to be an event.
        fields: Where the fields of an event are.
    """

    name: str
    container: str | None = None
    database: str | None = None
    lease_container: str | None = None
    quarantine_container: str | None = None
    feed: str | None = None
    shards: int | None = None
    types: tuple[str, ...] | None = None
    events: tuple[Condition, ...] = ()
    fields: Fields = PLAIN

    @property
    def kind(self) -> str | None:
        """The source that has it, as `--source` names it; None if the environment alone says which."""
        if self.feed is not None:
            return "sql"
        return None if self.container is None else "cosmos"


@dataclass(frozen=True, slots=True)
class RelayFile:
    """The content of relay.toml.

    Attributes:
        sources: The outboxes by name. Without the file, or if it has none, there is the environment's alone.
        destinations: Those of the file and `default`, by name.
        routes: The rules, each with the outbox whose events it is about; None for all of them.
        keeps_unrouted: Whether events that no route takes are set aside; else they are ignored.
        has_generations: Whether changed rules count for later events only; else for all that were not read.
        says_which_count: Whether the file itself has chosen between the two.
        in_file: The destinations that have a table in the file.
        content: The parsed file.
    """

    sources: Mapping[str, Source] = field(default_factory=lambda: {DEFAULT: Source(DEFAULT)})
    destinations: Mapping[str, Destination] = field(default_factory=lambda: {DEFAULT: Destination(DEFAULT)})
    routes: Sequence[tuple[str | None, Route]] = ()
    keeps_unrouted: bool = True
    has_generations: bool = False
    says_which_count: bool = False
    in_file: tuple[str, ...] = ()
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def routes_of(self, source: str) -> tuple[Route, ...]:
        """Return the rules for the events of one outbox, in order, up to the first that takes every event."""
        found = []
        for outbox, route in self.routes:
            if outbox in (None, source):
                found.append(route)
                if not route.when:
                    break
        return tuple(found)

    def destinations_of(self, source: str) -> tuple[str, ...]:
        """Return the destinations that the rules of one outbox name, in their order."""
        if not self.routes:
            return (DEFAULT,)
        return tuple(dict.fromkeys(each for route in self.routes_of(source) for each in route.to))

    def drained_of(self, source: str) -> tuple[str, ...]:
        """Return the destinations in the file that no rule of this outbox names: their streams read what is left.

        Rules of another outbox may name them: a destination is given up by each outbox on its own.
        """
        if not self.has_generations:
            return ()
        named = self.destinations_of(source)
        return tuple(each for each in self.in_file if each not in named)


def read(path: Path, *, named_by: str | None = None) -> RelayFile:
    """Read the file; as empty if it does not exist and no setting names it (`named_by`).

    Raises:
        SettingsError: Naming everything that is wrong with it, each by its path, such as `routes[2].when.type`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if named_by is None:
            return RelayFile()
        names = f"{named_by} names {quoted(path.name)}"
        raise SettingsError([f"{names}: there is no such file in {path.parent}"]) from None
    except OSError as error:
        raise SettingsError([f"{quoted(path.name)} cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path.name} cannot be read: {error}"]) from error
    # Most apps have no such file.
    import tomllib

    try:
        content = tomllib.loads(text)
    except RecursionError as error:
        raise SettingsError([f"{path.name} has tables or lists within one another without end"]) from error
    # Also for a number with too many digits, for which int raises a plain ValueError.
    except ValueError as error:
        raise SettingsError([f"{path.name} is no TOML: {error}"]) from error
    return parse(content, path.name)


def parse(content: Mapping[str, Any], name: str = FILE) -> RelayFile:
    """Check the parsed content of a file, as `read` does. Errors begin with `name`."""
    problems: list[str] = []
    top = Table(content, "", problems)
    mapping = _mapping(top)
    sources = _named(top, "outboxes", lambda each, table: _source(each, table, mapping))
    destinations = _named(top, "destinations", _destination)
    unrouted = top.text("unrouted", UNROUTED) or UNROUTED[0]
    changed_rules = top.text("changed_rules", CHANGED_RULES)
    in_file = tuple(destinations)
    if content.get("outboxes") == {}:
        top.wrong("outboxes", "has no outbox: add one, or leave it out")
    sources = sources or {DEFAULT: mapping.source(DEFAULT)}
    destinations.setdefault(DEFAULT, Destination(DEFAULT))
    for each in sorted(sources.keys() & destinations.keys() - {DEFAULT}):
        top.wrong(f"outboxes.{each}", "is also the name of a destination: rename one of them")
    routes = tuple(_route(each, sources, destinations) for each in top.tables("routes"))
    top.no_more()
    found = RelayFile(
        sources,
        destinations,
        routes,
        keeps_unrouted=unrouted == UNROUTED[0],
        has_generations=changed_rules == CHANGED_RULES[1],
        says_which_count=changed_rules is not None,
        in_file=in_file,
        content=content,
    )
    # A condition that is wrong is left out, and its route would seem to take everything.
    if not problems:
        _check_reach(found, top)
    if problems:
        raise SettingsError([f"{name}: {problem}" for problem in dict.fromkeys(problems)])
    return found


def _check_reach(found: RelayFile, top: Table) -> None:
    """Check that each route takes some event of some outbox, and that each outbox has a route."""
    if not found.routes:
        return
    # Most files have none.
    from relay.routes.reach import Earlier

    seen = {source: Earlier() for source in found.sources}
    for number, (outbox, route) in enumerate(found.routes):
        of = [seen[source] for source in ([outbox] if outbox is not None else found.sources)]
        ahead = [place for each in of if (place := each.covering(route)) is not None]
        if len(ahead) == len(of):
            what = f"never counts: routes[{max(ahead)}] takes every event of it. Move it ahead, or remove it"
            top.wrong(f"routes[{number}]", what)
        for each in of:
            each.add(number, route)
    for source in found.sources:
        if not found.routes_of(source):
            top.wrong(f"outboxes.{source}", "has no route: add one to [[routes]], or remove the outbox")


class Table:
    """A table of the file, whose values are taken one by one; what is wrong is gathered."""

    def __init__(self, content: Mapping[str, Any], path: str, problems: list[str]) -> None:
        self._content = dict(content)
        self._known: list[str] = []
        self._path = path
        self.problems = problems

    def at(self, name: str) -> str:
        """Return the path of a member."""
        return f"{self._path}.{name}" if self._path else name

    def wrong(self, name: str, what: str) -> None:
        """Add a problem: of the member, `what` is said, with the remedy."""
        self.problems.append(f"{self.at(name)} {what}")

    def take(self, name: str) -> Any:
        """Take a value of any type, or None if it is not there."""
        self._known.append(name)
        return self._content.pop(name, None)

    def names(self) -> list[str]:
        """Return the members not taken yet."""
        return list(self._content)

    def text(
        self, name: str, choices: Sequence[str] = (), *, pattern: re.Pattern[str] | None = None, example: str = ""
    ) -> str | None:
        value = self.take(name)
        if value is None:
            return None
        if choices and value not in choices:
            self.wrong(name, f"is {quoted(value)}: write {' or '.join(map(repr, choices))}")
        elif not isinstance(value, str) or not _VISIBLE.search(value):
            self.wrong(name, f"is {quoted(value)}: write a text")
        elif looks_secret(value):
            self.wrong(name, f"is {hidden(value)}: write a name, and the connection string into a setting")
        elif pattern is not None and not pattern.fullmatch(value):
            self.wrong(name, f"is {quoted(value)}: write {example}")
        else:
            return value
        return None

    def texts(self, name: str, *, may_be_empty: bool = False) -> tuple[str, ...] | None:
        value = self.take(name)
        if value is None or (value == [] and may_be_empty):
            return None if value is None else ()
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            self.wrong(name, f'is {quoted(value)}: write a list of texts, such as ["domainEvent"]')
            return None
        if secret := next(filter(looks_secret, value), None):
            self.wrong(name, f"has {hidden(secret)}: write names")
            return None
        return tuple(value)

    def number(self, name: str, *, at_least: int, at_most: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if type(value) is not int or not at_least <= value <= at_most:
            self.wrong(name, f"is {quoted(value)}: write a whole number from {at_least} to {at_most}")
            return None
        return value

    def table(self, name: str) -> Table:
        """Take a table within this one; an empty one if it is not there."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.wrong(name, f"is {quoted(value)}: write a table")
            value = None
        return Table(value or {}, self.at(name), self.problems)

    def tables(self, name: str) -> list[Table]:
        """Take a list of tables."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.wrong(name, f"is {quoted(value)}: write tables, each under [[{name}]]")
            return []
        return [Table(each, f"{self.at(name)}[{number}]", self.problems) for number, each in enumerate(value)]

    def no_more(self) -> None:
        """Report every member that was not taken as unknown."""
        for name in self._content:
            self.wrong(name, f"is unknown: there are {', '.join(self._known)}")


def _named(top: Table, name: str, make: Any) -> dict[str, Any]:
    tables = top.table(name)
    found = {}
    for each in tables.names():
        if not _NAME.fullmatch(each):
            tables.wrong(each, "is no name: write a small letter, then small letters and digits, 24 at most")
        found[each] = make(each, tables.table(each))
    return found


def _destination(name: str, table: Table) -> Destination:
    given = table.names()
    topic, queue = (table.text(kind, pattern=ENTITY, example=ENTITY_FORM) for kind in ("topic", "queue"))
    connection = table.text("connection", pattern=_SETTING, example="a setting's name") or "SERVICEBUS"
    window_s = table.number("duplicate_window_s", at_least=20, at_most=604_800)
    if "topic" in given and "queue" in given:
        table.wrong("queue", "is set beside a topic: keep one of them")
    if "topic" not in given and "queue" not in given and name != DEFAULT:
        table.wrong("topic", "is not set: write the name of a topic, or of a queue as `queue`")
    table.no_more()
    return Destination(name, topic or queue, queue is not None, connection, window_s)


def _source(name: str, table: Table, top: _Mapping) -> Source:
    given = table.names()
    cosmos = {
        each: table.text(each) for each in ("container", "database", "lease_container", "quarantine_container")
    }
    feed = table.text("feed", pattern=_TABLE, example="the event table as schema.Table")
    shards = table.number("shards", at_least=1, at_most=1024)
    own = _mapping(table)
    if "feed" in given and any(each in given for each in cosmos):
        table.wrong("feed", "is set beside a container: an outbox is in Cosmos DB or in SQL")
    if name != DEFAULT and "feed" not in given and "container" not in given:
        table.wrong("container", "is not set: write the container of Cosmos DB, or the event table as `feed`")
    if "shards" in given and "feed" not in given and (name != DEFAULT or "container" in given):
        table.wrong("shards", "is set without a feed: an outbox in Cosmos DB has none")
    table.no_more()
    return own.over(top).source(name, feed=feed, shards=shards, **cosmos)


@dataclass(frozen=True, slots=True)
class _Mapping:
    """The rules of a file about the documents of all outboxes, or of one; all but `types` by name."""

    layout: str | None = None
    types: tuple[str, ...] | None = None
    events: Mapping[str, Condition] = field(default_factory=dict)
    fields: Mapping[str, tuple[Pointer, ...]] = field(default_factory=dict)
    properties: Mapping[str, Property] = field(default_factory=dict)
    message: Mapping[str, Pointer] = field(default_factory=dict)

    def over(self, other: _Mapping) -> _Mapping:
        """Return this mapping with the additions of the other one; with a layout of its own, it is complete."""
        if self.layout is not None:
            return self
        return _Mapping(
            other.layout,
            other.types if self.types is None else self.types,
            {**other.events, **self.events},
            {**other.fields, **self.fields},
            {**other.properties, **self.properties},
            {**other.message, **self.message},
        )

    def source(self, name: str, **places: Any) -> Source:
        """Return the outbox of this name whose documents these are."""
        fields = Fields(tuple(self.fields.items()), tuple(self.properties.values()), tuple(self.message.items()))
        # Of a document that need not have a type, it is not certain that it has one.
        is_plain = fields == Fields() and self.types != ()
        return Source(
            name,
            types=self.types,
            events=tuple(self.events.values()),
            fields=PLAIN if is_plain else fields,
            **places,
        )


def _mapping(table: Table) -> _Mapping:
    layout = table.text("layout", tuple(LAYOUTS))
    own = _Mapping(
        None,
        table.texts("types", may_be_empty=True),
        {each.name: each for each in _conditions(table.table("events"))},
        _fields(table.table("fields")),
        _properties(table.table("properties")),
        _message(table.table("message")),
    )
    if layout is None:
        return own
    return replace(own.over(_mapping(Table(LAYOUTS[layout], "", []))), layout=layout)


def _fields(table: Table) -> dict[str, tuple[Pointer, ...]]:
    found = {}
    for name in NAMES:
        value = table.take(name)
        texts = value if name == "id" and isinstance(value, list) and value else [value]
        pointers = () if value is None else tuple(_pointer(table, name, each) for each in texts)
        if name in _QUERIED and any(_is_number(part) for each in pointers if each for part in each.names):
            table.wrong(
                name, f"is {quoted(value)}: no query can look into an array. Choose a field that is in none"
            )
        elif value is not None and all(pointers):
            found[name] = tuple(each for each in pointers if each)
    table.no_more()
    return found


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


# The fields by which commands look for events.
_QUERIED = ("id", "key", "type", "action")


def _properties(table: Table) -> dict[str, Property]:
    found = {}
    for name in table.names():
        value = table.take(name)
        if name in OWN_PROPERTIES:
            table.wrong(name, "is the relay's own property: choose another name")
        if name in BROKERS_PROPERTIES:
            table.wrong(name, "is a property that Service Bus gives a dead letter: choose another name")
        if not 0 < len(name) <= _MAX_PROPERTY_NAME:
            table.wrong(name, f"has a name of {len(name)} characters: write 1 to {_MAX_PROPERTY_NAME}")
        if isinstance(value, dict):
            rule = Table(value, table.at(name), table.problems)
            pointer, kind = _pointer(rule, "from", rule.take("from")), rule.text("as", tuple(TYPES))
            rule.no_more()
        else:
            pointer, kind = _pointer(table, name, value), None
        if pointer is not None:
            found[name] = Property(name, pointer, kind)
    return found


_MAX_PROPERTY_NAME = 128


def _message(table: Table) -> dict[str, Pointer]:
    values = {name: table.take(name) for name in MESSAGE}
    pointers = {name: _pointer(table, name, value) for name, value in values.items() if value is not None}
    table.no_more()
    return {name: each for name, each in pointers.items() if each is not None}


def _pointer(table: Table, name: str, value: Any) -> Pointer | None:
    """Return the pointer that a member has, or None if it has none, which is a problem."""
    try:
        if not isinstance(value, str) or not value:
            raise ValueError(f"is {quoted(value)}: write a JSON Pointer, such as /data/createdAt")
        return Pointer.parse(value)
    except ValueError as error:
        table.wrong(name, str(error))
        return None


def _route(
    table: Table, sources: Mapping[str, Source], destinations: Mapping[str, Destination]
) -> tuple[str | None, Route]:
    outbox = table.text("outbox", sorted(sources))
    when = _conditions(table.table("when"))
    if "to" not in table.names():
        table.wrong("to", "is not set: write a list of destinations")
    to = table.texts("to") or ()
    for each in to:
        if each not in destinations:
            table.wrong("to", f"has {quoted(each)}: there are {', '.join(sorted(destinations))}")
    table.no_more()
    return outbox, Route(when, tuple(dict.fromkeys(to)))


def _conditions(table: Table) -> tuple[Condition, ...]:
    found = []
    for name in table.names():
        value = table.take(name)
        prefix = value.get("prefix") if isinstance(value, dict) and set(value) == {"prefix"} else None
        values = _scalars(value)
        if not values and not (isinstance(prefix, str) and prefix):
            table.wrong(name, f'is {quoted(value)}: write a value, a list of values, or {{ prefix = "…" }}')
            continue
        try:
            found.append(Condition(name, values, prefix))
        except ValueError as error:
            table.wrong(name, str(error))
    return tuple(found)


def _scalars(value: Any) -> tuple[Scalar, ...]:
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    found = tuple(each for each in values if isinstance(each, str | int | float) and _is_json(each))
    return found if len(found) == len(list(values)) else ()


def _is_json(value: Scalar) -> bool:
    """Return True if a document can have the value."""
    return not isinstance(value, float) or math.isfinite(value)
