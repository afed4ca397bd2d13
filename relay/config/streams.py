"""The streams of an app: one outbox read for one destination, with the settings of each.

Without a file there is one stream, which the environment describes. With relay.toml there is one for each outbox
and each destination that a route of the outbox names. A stream's name is stored in ids of leases and in names of
consumers and quarantines, so it depends on nothing but the two names; `default` ones are left out of it, so that
the first stream of an app continues where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.config.clients import ConnectionString
from relay.config.reader import Reader
from relay.config.secrecy import hidden, looks_secret, quoted
from relay.config.settings import (
    CONSUMER,
    FILE_VARIABLE,
    QUARANTINE_TABLE,
    SERVICEBUS,
    TOPIC,
    CosmosSettings,
    DeployedRules,
    ServiceBusSettings,
    Settings,
    SqlFeed,
    read_namespace,
)
from relay.core.documents import SourceDocument
from relay.core.errors import RulesError, SettingsError, UsageError, first_line
from relay.routes import file
from relay.routes.file import Destination, RelayFile, Source
from relay.routes.selection import DEFAULT, Route, Selection

_BESIDE = Path(__file__).parents[2]

# The operator's distribution has no app: the current folder takes its place.
APP = Path.cwd() if any(_BESIDE.glob("outbox_relay_operator-*.dist-info")) else _BESIDE
"""The folder of function_app.py and relay.toml."""


def read_streams(
    environment: Mapping[str, str] = os.environ, *, app: Path = APP, function_timeout_s: float | None = None
) -> list[Settings]:
    """Read the settings of every stream, in the order of the file.

    Args:
        environment: The settings.
        app: The folder that relay.toml is in.
        function_timeout_s: As of `Settings.from_environment`.

    Raises:
        SettingsError: Naming everything that is wrong with the file and the environment.
    """
    try:
        path, found = read_file(environment, app)
    except SettingsError as wrong:
        raise SettingsError(wrong.problems + _problems_beside(environment, function_timeout_s)) from wrong
    pairs = list(pairs_of(found))
    used = dict.fromkeys(found.destinations[each].connection for _, each in pairs)
    settings = Settings.from_environment(
        environment, function_timeout_s=function_timeout_s, namespaces=list(used) or [SERVICEBUS]
    )
    problems: list[str] = []
    streams: list[Settings] = []
    for number, (outbox, destination) in enumerate(pairs):
        source = found.sources[outbox]
        first = all(other != outbox for other, _ in pairs[:number])
        stream = _stream(settings, found, source, found.destinations[destination], first=first)
        setting = found.destinations[destination].connection
        connection = read_namespace(Reader(environment), setting)
        servicebus = replace(stream.servicebus, connection=connection, setting=setting)
        streams.append(replace(stream, servicebus=servicebus, several=len(pairs) > 1))
        if source.kind is not None and source.kind not in settings.sources:
            member = "container" if source.feed is None else "feed"
            problems.append(f"{path.name}: outboxes.{outbox} has a {member}, and {source.kind.upper()} is not set")
    problems += _other_entities(streams)
    checks = (
        *_beyond_columns(streams),
        *_without_document_id(streams),
        *_shared(streams),
        *_without_type(streams),
    )
    problems += [f"{path.name}: {each}" for each in checks]
    if problems:
        raise SettingsError(list(dict.fromkeys(problems)))
    return _sharing_memory(streams)


def _problems_beside(environment: Mapping[str, str], function_timeout_s: float | None) -> list[str]:
    """Return what is wrong with the environment beside a file that cannot be read."""
    try:
        # The file would name the namespaces.
        Settings.from_environment(environment, function_timeout_s=function_timeout_s, namespaces=())
    except SettingsError as error:
        return error.problems
    return []


def _beyond_columns(streams: list[Settings]) -> Iterator[str]:
    """Yield fields of an SQL outbox by which a feed cannot be read."""
    for each in streams:
        if each.sql is None or not each.selection.fields.names_fields:
            continue
        given = dict(each.selection.fields.given)
        places = given.get("id", ())
        if len(places) > 1 or any(len(pointer.names) > 1 for pointer in places):
            where = "has several places" if len(places) > 1 else "is within a column"
            yield (
                f"fields.id of the outbox {each.outbox} {where}: name the column that is the event table's "
                "primary key, such as /event_id"
            )
        if any(len(pointer.names) > 1 for pointer in given.get("key", ())):
            yield f"fields.key of the outbox {each.outbox} is within a column: name a column, such as /aggregateid"


def _without_document_id(streams: list[Settings]) -> Iterator[str]:
    """Yield outboxes in Cosmos DB for whose message ids relay.toml leaves out the document's id."""
    for each in streams:
        places = dict(each.selection.fields.given).get("id", ())
        if each.cosmos is not None and places and all(pointer.text != "/id" for pointer in places):
            yield (
                f"fields.id of the outbox {each.outbox} leaves out /id: in Cosmos DB the message id is the "
                "document's id, alone or joined with other places, such as ['/source', '/id']"
            )


def _other_entities(streams: list[Settings]) -> Iterator[str]:
    """Yield the connection strings of one topic or queue that a stream uses for another one.

    azure-servicebus (7.15.0) compares the names letter by letter, though those of the service have no case.
    """
    for each in streams:
        bus = each.servicebus
        path = ConnectionString(bus.connection.connection_string or "").get("EntityPath")
        if path not in (None, bus.entity):
            yield (
                f"{bus.setting} has the EntityPath {quoted(path)}, and "
                f"{bus.entity_setting} is {bus.entity!r}: leave EntityPath out, or use a connection string of the "
                "namespace"
            )


def _sharing_memory(streams: list[Settings]) -> list[Settings]:
    """Divide SQL_MAX_BYTES among the streams of a process, which hold it together."""
    readers = sum(each.sql is not None for each in streams)
    return [
        each
        if each.sql is None or readers == 1
        else replace(each, sql=replace(each.sql, max_bytes=each.sql.max_bytes // readers))
        for each in streams
    ]


def _shared(streams: list[Settings]) -> Iterator[str]:
    """Yield places that two streams must not have in common, or that one stream must not use for two things.

    A place is compared as its service compares names: a container's by letter, a topic's or queue's without case.
    """
    uses: dict[tuple[str, ...], dict[str, str]] = {}

    def use(what: str, place: str, *identity: str) -> None:
        uses.setdefault(identity or (place,), {}).setdefault(what, place)

    for each in streams:
        of_outbox = f"for the outbox {each.outbox}"
        use(
            f"the destination of the stream {each.stream}",
            f"{each.servicebus.destination} of {each.servicebus.setting} {of_outbox}",
            *(of_outbox, each.servicebus.connection.host, each.servicebus.entity.lower()),
        )
        if each.cosmos is not None:
            database = f"in the database {each.cosmos.database!r}"
            use(f"the outbox {each.outbox}", f"the container {each.cosmos.container!r} {database}")
            use("the leases", f"the container {each.cosmos.lease_container!r} {database}")
            quarantine = f"the container {each.cosmos.quarantine_container!r}"
            use(f"the quarantine of the stream {each.stream}", f"{quarantine} {database}")
        if each.sql is not None:
            feed = each.sql.feed if each.sql.is_postgresql else each.sql.feed.lower()
            use(f"the outbox {each.outbox}", f"the feed {each.sql.feed!r}", "feed", feed)
    for found in uses.values():
        if len(found) > 1:
            places = " or ".join(dict.fromkeys(found.values()))
            yield f"{places} would be {' and '.join(found)}: give each its own"


def _without_type(streams: list[Settings]) -> Iterator[str]:
    """Yield rules for a type that no event of their outbox has."""
    for each in streams:
        for route in each.selection.routes:
            for condition in route.when:
                types = each.selection.types
                if (
                    condition.name == "type"
                    and types
                    and not any(
                        condition.holds(SourceDocument.plain({"type": one})) for one in each.selection.types
                    )
                ):
                    yield (
                        f"the rule `{route}` of the outbox {each.outbox} never counts: its events are of the type "
                        f"{each.selection.types_text}. Add the type to `types`, or name the `action`"
                    )


def read_file(environment: Mapping[str, str] = os.environ, app: Path = APP) -> tuple[Path, RelayFile]:
    """Return the path of the app's relay.toml, which need not exist, and its content. Raises SettingsError."""
    name = environment.get(FILE_VARIABLE, "").strip()
    if looks_secret(name):
        raise SettingsError([f"{FILE_VARIABLE} is {hidden(name)}: set it to the path of a file"])
    path = app / (name or file.FILE)
    return path, file.read(path, named_by=FILE_VARIABLE if name else None)


def stream_of(streams: list[Settings], name: str | None) -> Settings:
    """Return the stream of this name, or the only one. Raises UsageError."""
    names = names_of(streams)
    if name is None:
        if len(streams) > 1:
            raise UsageError(f"relay.toml has several streams: add --stream with one of {names}")
        return streams[0]
    for each in streams:
        if each.stream == name:
            return each
    raise UsageError(f"--stream {name}: there is no such stream; there are {names}")


def names_of(streams: Iterable[Settings]) -> str:
    """Return the names of streams, in a sentence."""
    return ", ".join(each.stream for each in streams)


def stream_name(source: str, destination: str) -> str:
    """Return the name of a stream: of its outbox and its destination, without what is `default`."""
    return "-".join(each for each in (source, destination) if each != DEFAULT) or DEFAULT


def pairs_of(found: RelayFile) -> Iterator[tuple[str, str]]:
    """Yield the streams of a file: each outbox with each destination that its routes name, first `default`.

    What belongs to nobody is the first one's, so a route that is added ahead of the others does not move it. The
    destinations that are drained are the last.
    """
    for source in found.sources:
        for destination in sorted(found.destinations_of(source), key=DEFAULT.__ne__):
            yield source, destination
        for destination in found.drained_of(source):
            yield source, destination


def _stream(
    settings: Settings, found: RelayFile, source: Source, destination: Destination, *, first: bool
) -> Settings:
    """Return the settings of one stream, which may be the `first` one of its outbox."""
    name = stream_name(source.name, destination.name)
    suffix = _suffix(name)
    selection = _selection(found, source, destination.name, settings.policy.event_type, first=first)
    rules = _deployed(found, settings.policy.event_type) if found.has_generations else None
    if source.kind is not None:
        settings = settings.with_source(source.kind)
    if selection.types:
        settings = replace(settings, policy=replace(settings.policy, event_type=selection.types[0]))
    return replace(
        settings,
        stream=name,
        outbox=source.name,
        servicebus=_servicebus(settings.servicebus, destination),
        cosmos=None if settings.cosmos is None else _containers(settings.cosmos, source, name),
        sql=None if settings.sql is None else _feed(settings.sql, source, suffix),
        routed=selection,
        rules=rules,
        says_which_count=found.says_which_count,
    )


def _selection(found: RelayFile, source: Source, destination: str, event_type: str, *, first: bool) -> Selection:
    """Return the events of a stream by the rules of its outbox; `first` says whether it is the outbox's first."""
    types = (event_type,) if source.types is None else source.types
    routes = found.routes_of(source.name)
    if not routes and destination in found.drained_of(source.name):
        routes = (Route((), (DEFAULT,)),)
    keeps = bool(routes) and first and found.keeps_unrouted
    return Selection(types, source.events, routes, destination, first, keeps, source.fields)


def _deployed(found: RelayFile, event_type: str) -> DeployedRules:
    return DeployedRules(text_of_rules(found.content, event_type), time.time())


def text_of_rules(content: Mapping[str, Any], event_type: str) -> str:
    """Return what decides about events, as a generation has it: the content of the file, and RELAY_EVENT_TYPE."""
    # Most apps have no generations.
    from relay.routes.generations import rules_text

    return rules_text({"file": content, "RELAY_EVENT_TYPE": event_type})


def selection_of(rules: str, outbox: str, destination: str) -> Selection:
    """Return the events of a stream by the rules of a generation; none where they do not make such a stream.

    Args:
        rules: As `text_of_rules` writes them.
        outbox: The stream's outbox, by its name in the file.
        destination: The stream's destination, by its name in the file.

    Raises:
        RulesError: This version of the relay cannot read them.
    """
    found, event_type = _read_rules(rules)
    of_outbox = [each for source, each in pairs_of(found) if source == outbox]
    if destination not in of_outbox:
        return _NOTHING
    first = of_outbox[0] == destination
    return _selection(found, found.sources[outbox], destination, event_type, first=first)


def destinations_of(rules: str, outbox: str) -> list[str]:
    """Return the destinations to which the rules of a generation send events of an outbox. Raises RulesError."""
    found, _ = _read_rules(rules)
    return sorted(found.destinations_of(outbox), key=DEFAULT.__ne__) if outbox in found.sources else []


def _read_rules(rules: str) -> tuple[RelayFile, str]:
    """Return the file and the event type that `text_of_rules` has written. Raises RulesError."""
    import json

    try:
        content = json.loads(rules)
        return file.parse(content["file"]), str(content["RELAY_EVENT_TYPE"])
    except (SettingsError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RulesError(
            "this version of the relay cannot read rules that count for an event, as another version has written "
            f"them: {first_line(error)} Deploy the version that has written them, or a later one."
        ) from error


def in_stream(settings: Settings, destination: str) -> Settings:
    """Return the settings with which the stream of an outbox to another destination finds its position."""
    name = stream_name(settings.outbox, destination)
    cosmos, sql = settings.cosmos, settings.sql
    return replace(
        settings,
        stream=name,
        cosmos=None if cosmos is None else replace(cosmos, lease_prefix=_lease_prefix(name)),
        sql=None if sql is None else replace(sql, consumer=f"{CONSUMER}{_suffix(name)}"),
        routed=replace(settings.selection, destination=destination),
    )


def _suffix(name: str) -> str:
    return "" if name == DEFAULT else f"-{name}"


def _lease_prefix(name: str) -> str:
    # The point ends it, so that no other prefix begins with it.
    return "" if name == DEFAULT else f"{name}."


_NOTHING = Selection(("domainEvent",), routes=(Route((), ()),), is_first=False)


def _place(destination: Destination) -> str:
    """Return the place in relay.toml of the name of a topic or queue."""
    return f"destinations.{destination.name}.{'queue' if destination.is_queue else 'topic'} of relay.toml"


def _servicebus(settings: ServiceBusSettings, destination: Destination) -> ServiceBusSettings:
    return replace(
        settings,
        entity=destination.entity or settings.entity,
        is_queue=destination.is_queue,
        entity_setting=TOPIC if destination.entity is None else _place(destination),
        duplicate_window_s=destination.duplicate_window_s or settings.duplicate_window_s,
    )


def _containers(settings: CosmosSettings, source: Source, stream: str) -> CosmosSettings:
    return replace(
        settings,
        database=source.database or settings.database,
        container=source.container or settings.container,
        lease_container=source.lease_container or settings.lease_container,
        quarantine_container=(source.quarantine_container or settings.quarantine_container) + _suffix(stream),
        lease_prefix=_lease_prefix(stream),
    )


def _feed(sql: SqlFeed, source: Source, suffix: str) -> SqlFeed:
    return replace(
        sql,
        feed=source.feed or sql.feed,
        shards=source.shards or sql.shards,
        consumer=f"{CONSUMER}{suffix}",
        quarantine_table=f"{QUARANTINE_TABLE}{suffix.replace('-', '_')}",
    )
