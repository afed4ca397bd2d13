"""Random relay.toml and random events: the relay does with each what docs/routes.md and docs/mapping.md say."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.changefeed.statements import Entry
from relay.backends.cosmos.source import select
from relay.backends.sql.rows import select as select_rows
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.errors import SettingsError
from relay.core.events import Event, Reason, Received, Rejected
from relay.routes.mapping import Long, Moment
from relay.servicebus import messages
from tests.fuzz.budget import trying
from tests.unit.relay.commands import ENVIRONMENT
from tests.unit.relay.routing_reference import NOWHERE, Aside, Content, Sent, destinations_of, outbox_of

# A file and its some hundred events take 30 ms; `FUZZ_EXAMPLES=100000` tries many.
FILES = int(os.environ.get("FUZZ_EXAMPLES", "2000")) // 40
ULID = (1_770_000_000_000).to_bytes(6, "big") + bytes(9) + b"\x07"

# Two spellings of one letter, which no comparison takes for one another.
COMPOSED, DECOMPOSED = "\u00e9", "e\u0301"
TEXTS = (
    *("a", "A", "a b", "ab", "1", "true", "12.50", "", " ", COMPOSED, DECOMPOSED, "x" * 129, "\U0001f600" * 64),
    *("50%", "a&b", "\ud800", "domainEvent", "order", "1.0", "-7", "1e3", "0x1", "\u0661", "1_000"),
    *(
        "2026-02-09T11:37:00Z",
        "2026-02-09 11:37:00+01:00",
        "2026-02-30T00:00:00Z",
        "2026-02-09T11:37Z",
        "2026-02-09",
    ),
    *("PT10M", "P1D", "P50D", "600", "+600", "\u0661\u0662"),
)
NUMBERS = (0, 1, -1, 1.0, 12.5, 600, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 1e300, True, False)
DECIMALS = (Decimal("12.50"), Decimal("12.00"), Decimal(1), Decimal("0.1"), Decimal(2**63))
COLUMNS = ("kind", "a/b", "~x", COMPOSED, DECOMPOSED, "n", "source", "time", "subject", "traceparent", "sequence")
PLACES = [
    *("/id", "/type", "/kind", "/a~1b", "/~0x", "/n", f"/{COMPOSED}", f"/{DECOMPOSED}", "/source", "/subject"),
    *(
        "/data/action",
        "/data/tenant",
        "/data/list/0",
        "/data/list/00",
        "/data/list/-",
        "/data/deep/x",
        "/data/deep",
    ),
    *("/nothing", "/data/nothing", "/kind/x", "/payload/x", "/n/0", "/Id", "/sequence"),
]

texts = st.sampled_from(TEXTS)
scalars = texts | st.sampled_from(NUMBERS) | st.none()
values: st.SearchStrategy[Any] = scalars | st.just([]) | st.just({"x": "a"}) | st.lists(scalars, max_size=2)
places = st.sampled_from(PLACES)
conditions = st.dictionaries(
    st.sampled_from(["id", "key", "type", "action", *PLACES]),
    st.one_of(
        texts.filter(lambda text: text != "\ud800"),
        st.sampled_from([0, 1, 12.5, True, False]),
        st.lists(st.sampled_from(["a", "A", "1", 1, 12.5, True, COMPOSED]), min_size=1, max_size=3),
        st.builds(lambda prefix: {"prefix": prefix}, st.sampled_from(["a", "A", "1", DECOMPOSED[0], " "])),
    ),
    max_size=2,
)
types = st.lists(st.sampled_from(["domainEvent", "order", "a"]), max_size=2, unique=True)
properties = st.dictionaries(
    st.sampled_from(["tenant", "Tenant", "p q"]),
    places
    | st.builds(
        lambda place, wanted: {"from": place, "as": wanted},
        places,
        st.sampled_from(["string", "long", "double", "boolean", "date"]),
    ),
    max_size=2,
)
further = st.dictionaries(
    st.sampled_from(["subject", "correlation_id", "reply_to", "time_to_live", "scheduled_enqueue_time"]),
    places,
    max_size=1,
)


def mappings(*, is_sql: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Draw what a file says about the documents of all outboxes, or of one."""
    # No query can look into an array, so commands could not find the event.
    places = st.sampled_from([each for each in PLACES if not each[-2:].lstrip("/").isdigit() and "-" not in each])
    others = st.lists(places.filter("/id".__ne__), max_size=1)
    joined = st.builds(lambda one, last: [*one, "/id"] if last else ["/id", *one], others, st.booleans())
    fields = {
        "id": st.sampled_from(["/id", "/kind", "/n"]) if is_sql else st.just("/id") | joined,
        "key": st.sampled_from(["/partition_key", "/kind", "/n"]) if is_sql else places,
        "data": st.sampled_from(["/data", "/data/deep", "/payload", "/kind"]),
        **dict.fromkeys(("type", "action", "time", "trace", "sequence"), places),
    }
    chosen = st.sets(st.sampled_from(sorted(fields)), max_size=4)
    return st.fixed_dictionaries(
        {},
        optional={
            "layout": st.sampled_from(["article", *(["debezium"] if is_sql else ["article", "cloudevents"])]),
            "types": types,
            "events": conditions,
            "fields": chosen.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names})),
            "properties": properties,
            "message": further,
        },
    )


@st.composite
def files(draw: st.DrawFn, *, is_sql: bool) -> Content:
    """The content of a relay.toml."""
    place = {"feed": "app.event"} if is_sql else {"container": "shop"}
    content = {**draw(mappings(is_sql=is_sql)), "destinations": {"b": {"topic": "b"}, "c": {"queue": "c"}}}
    own = {"feed": "app.other"} if is_sql else {}
    outboxes = draw(st.sampled_from([[], ["default", "shop"], ["shop"]]))
    if outboxes:
        content["outboxes"] = {
            name: {**draw(mappings(is_sql=is_sql)), **(place if name == "shop" else own)} for name in outboxes
        }
    to = st.lists(st.sampled_from(["default", "b", "c"]), min_size=1, max_size=3, unique=True)
    actions = st.lists(st.sampled_from(["a", "A", "order-7"]), min_size=1, max_size=2, unique=True)
    route = {"when": conditions | st.fixed_dictionaries({"action": actions}), "to": to}
    optional = {"outbox": st.sampled_from(outboxes)} if outboxes else {}
    content["routes"] = draw(st.lists(st.fixed_dictionaries(route, optional=optional), max_size=3))
    if draw(st.booleans()):
        content["routes"] = [*content["routes"], {"to": draw(to)}]
    if draw(st.booleans()):
        content["unrouted"] = draw(st.sampled_from(["quarantine", "ignore"]))
    return content


# Most events are sound, but for the few members that are replaced.
sound = st.sampled_from(["a", "A", "a b", "order-7", COMPOSED])
kinds = st.sampled_from(["domainEvent", "domainEvent", "order", "a"])
objects = st.fixed_dictionaries(
    {"action": sound},
    optional={"createdAt": values, "tenant": values, "list": st.lists(scalars, min_size=1, max_size=2)}
    | {"deep": st.fixed_dictionaries({}, optional={"x": scalars, "action": texts}), "note": texts},
)
json_texts = objects.map(json.dumps) | st.sampled_from(["[1]", "7", "{", "", '{"x": "a"}'])
wrong = st.dictionaries(st.sampled_from(["id", "type", "data", "partitionKey", "action"]), values, max_size=1)


def among(made: dict[str, Any], replaced: dict[str, Any]) -> dict[str, Any]:
    return {**made, **replaced}


documents = st.builds(
    among,
    st.fixed_dictionaries(
        {"id": sound, "type": kinds, "partitionKey": sound, "data": objects | objects | json_texts},
        optional={"partitionkey": sound, "specversion": st.just("1.0"), "payload": values}
        | {"_ts": st.just(1_700_000_000)}
        | dict.fromkeys(COLUMNS, values),
    ),
    st.just({}) | wrong,
)
cells = scalars | json_texts | st.sampled_from(DECIMALS)
rows = st.builds(
    among,
    st.fixed_dictionaries(
        {
            "id": sound,
            "partition_key": sound,
            "type": kinds,
            "data": objects.map(json.dumps),
            "aggregateid": sound,
        },
        optional={
            "payload": json_texts,
            "action": texts,
            "created_at": texts,
            **dict.fromkeys(COLUMNS, cells),
            # Ids and keys are texts or numbers.
            **dict.fromkeys(("kind", "n"), cells.filter(lambda value: not isinstance(value, bool))),
            "traceparent": texts,
        },
    ),
    st.just({}) | st.dictionaries(st.sampled_from(["id", "type", "data", "partition_key"]), texts, max_size=1),
)


def places_in(value: Any) -> Iterator[str]:
    """The places that a file names."""
    if isinstance(value, dict):
        yield from (name for name in value if name.startswith("/"))
        value = list(value.values())
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict | list):
            yield from places_in(each)
        elif isinstance(each, str) and each.startswith("/"):
            yield each


def replaced(holder: Any, names: list[str], value: Any, *, is_row: bool = False) -> Any:
    """A document with this value, or none if it is `NOWHERE`, at a place that may be within JSON text."""
    if not names:
        return value
    if isinstance(holder, str):
        try:
            return json.dumps(replaced(json.loads(holder), names, value))
        except (ValueError, TypeError):
            # It is no JSON, or a Decimal would be in it.
            return holder
    name = names[0].replace("~1", "/").replace("~0", "~")
    if isinstance(holder, list):
        return (
            holder
            if value is NOWHERE
            else [replaced(each, names[1:], value) if name == str(at) else each for at, each in enumerate(holder)]
        )
    holder = holder if isinstance(holder, dict) else {}
    if len(names) == 1 and value is NOWHERE:
        return {each: member for each, member in holder.items() if each != name}
    inner = holder.get(name)
    if is_row and len(names) > 1 and not isinstance(inner, str):
        inner = "{}"  # No driver has a Decimal within another value.
    return {**holder, name: replaced(inner, names[1:], value)}


def variants(content: Content, document: dict[str, Any], *, is_sql: bool) -> Iterator[dict[str, Any]]:
    """The document with each value at each of the places that the file names."""
    values: list[Any] = [*TEXTS, *NUMBERS, None, *(DECIMALS if is_sql else ([], {"x": "a"}))]
    for place in dict.fromkeys((*places_in(content), "/partition_key" if is_sql else "/partitionKey")):
        # A column of ids or keys has texts or whole numbers.
        is_key = is_sql and place in ("/id", "/partition_key", "/kind", "/n")
        is_always_there = is_sql and place in ("/id", "/partition_key", "/type", "/data")
        tried = TEXTS if is_sql and place == "/type" else (*TEXTS, 7, 2**63) if is_key else values
        for value in tried if is_always_there else (*tried, NOWHERE):
            yield replaced(document, place.split("/")[1:], value, is_row=is_sql)


def as_toml(value: Any) -> str:
    """A value of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(name)} = {as_toml(each)}" for name, each in value.items()) + "}"
    return f"[{', '.join(map(as_toml, value))}]" if isinstance(value, list) else text_of(value)


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def streams_of(content: Content, folder: Path, environment: Mapping[str, str]) -> list[Settings] | None:
    """The streams; None if a rule can never count, which is an error."""
    text = "\n".join(f"{text_of(name)} = {as_toml(value)}" for name, value in content.items())
    (folder / "relay.toml").write_text(text, encoding="utf-8")
    try:
        return read_streams(environment, app=folder)
    except SettingsError as error:
        if all("never counts" in problem or "has no route" in problem for problem in error.problems):
            return None
        raise


def became(received: Received, settings: Settings) -> Iterator[Sent | Aside]:
    """Yield what the stream does with the only document that it has received."""
    contract = messages.contract(None, settings.selection.fields)
    for found in (*received.events, *received.rejected):
        if isinstance(found, Rejected):
            yield Aside("no-route" if found.reason is Reason.NO_ROUTE else None)
            continue
        assert isinstance(found, Event)
        message = contract(found)
        parts = message.further or messages.Further()
        yield Sent(
            message.id,
            message.partition_key,
            message.subject,
            json.loads(message.body),
            {name: (kind_of(value), value) for name, value in message.application_properties.items()},
            *parts,
        )


def kind_of(value: Any) -> str:
    kinds = {Long: "long", Moment: "date", int: "number", str: "string", bool: "boolean", float: "double"}
    return kinds[type(value)]


def judge(
    content: Content, settings: list[Settings], document: Mapping[str, Any], *, is_sql: bool
) -> Counter[str]:
    """Compare what becomes of a document in each stream with what the pages say, and count the fates."""
    fates: Counter[str] = Counter()
    for outbox in dict.fromkeys(each.outbox for each in settings):
        expected = destinations_of(outbox_of(content, outbox, is_sql=is_sql), document)
        found = {}
        for stream in (each for each in settings if each.outbox == outbox):
            if is_sql:
                received = select_rows([Entry(ULID, document, {})], 0, stream.selection)
            else:
                received = select([document], stream.selection)
            for fate in became(received, stream):
                found[stream.selection.destination] = fate
        assert found == expected, f"{content} {document}"
        fates.update(type(each).__name__ for each in found.values())
    return fates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app")


@pytest.mark.parametrize("is_sql", [False, True], ids=["Cosmos DB", "SQL"])
def test_each_event_goes_where_the_pages_say_and_as_they_say(is_sql: bool, folder: Path) -> None:
    environment = ENVIRONMENT
    if is_sql:
        environment = {"SQL": "postgresql://h/d", "SQL_FEED": "app.main", "SERVICEBUS": ENVIRONMENT["SERVICEBUS"]}
    fates: Counter[str] = Counter()

    @trying(FILES)
    @given(files(is_sql=is_sql), st.lists(rows if is_sql else documents, min_size=1, max_size=2))
    def compare(content: Content, stored: list[dict[str, Any]]) -> None:
        settings = streams_of(content, folder, environment)
        if settings is None:
            fates["refused"] += 1
            return
        for document in (*stored, *variants(content, stored[0], is_sql=is_sql)):
            fates.update(judge(content, settings, document, is_sql=is_sql))

    compare()

    # The search is not empty.
    assert min(fates["Sent"], fates["Aside"], FILES) > 0
