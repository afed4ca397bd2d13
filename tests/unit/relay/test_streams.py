"""The streams that relay.toml and the settings make, and which documents are each one's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.backends.cosmos.source import event_of
from relay.config.settings import Settings
from relay.config.streams import APP, read_streams, stream_of
from relay.core.documents import SourceDocument
from relay.core.errors import SettingsError, UsageError
from relay.core.events import Reason, Rejected
from relay.routes.conditions import Condition
from relay.routes.file import parse
from relay.routes.reach import Earlier
from relay.routes.selection import Route, Selection
from tests.unit.relay.commands import ENVIRONMENT

SQL = {"SQL": "postgresql://h/d"}
BUS = {"ORDERS_BUS__fullyQualifiedNamespace": "orders.servicebus.windows.net"}

FILE = """
[outboxes.default]
[outboxes.orders]
container = "orders"
database = "shop"
lease_container = "order-leases"
types = ["order", "offer"]
[outboxes.stock]
feed = "stock.Event"
shards = 4
types = ["stock"]

[destinations.audit]
queue = "audit-in"
connection = "ORDERS_BUS"
duplicate_window_s = 3600

[[routes]]
outbox = "stock"
to = ["audit"]
[[routes]]
when = { action = "Secret" }
to = ["audit"]
[[routes]]
when = { "/data/a" = 1 }
to = ["audit", "default"]
"""


def streams_of(text: str, tmp_path: Path, **environment: str) -> list[Settings]:
    (tmp_path / "relay.toml").write_text(text)
    return read_streams(ENVIRONMENT | environment, app=tmp_path)


def problems_of(text: str, tmp_path: Path, **environment: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        streams_of(text, tmp_path, **environment)
    return list(raised.value.problems)


@pytest.mark.parametrize("text", [None, "", "[outboxes.default]", "[destinations.unused]\ntopic = 't'"])
def test_without_routes_everything_is_as_the_environment_says(text: str | None, tmp_path: Path) -> None:
    environment = ENVIRONMENT | SQL | {"RELAY_EVENT_TYPE": "x"}
    if text is not None:
        (tmp_path / "relay.toml").write_text(text)

    [stream] = read_streams(environment, app=tmp_path)

    assert replace(stream, routed=None) == Settings.from_environment(environment)
    assert stream.selection == Settings.from_environment(environment).selection
    assert stream.label is None


def test_each_stream_has_names_places_and_a_destination_of_its_own(tmp_path: Path) -> None:
    streams = streams_of(FILE, tmp_path, **SQL, **BUS, SQL_MAX_BYTES="5000000")

    assert [each.stream for each in streams] == ["default", "audit", "orders", "orders-audit", "stock-audit"]
    assert [each.outbox for each in streams] == ["default", "default", "orders", "orders", "stock"]
    prefixes = [each.cosmos.lease_prefix for each in streams if each.cosmos is not None]
    assert prefixes == ["", "audit.", "orders.", "orders-audit."]
    default, audit, orders, _, stock = streams
    assert default.label == "default"
    assert (default.cosmos is None, default.sql is None) == (False, False)
    assert (default.servicebus.entity, default.servicebus.is_queue) == ("domain-events", False)
    assert (audit.servicebus.entity, audit.servicebus.is_queue) == ("audit-in", True)
    assert (default.servicebus.duplicate_window_s, audit.servicebus.duplicate_window_s) == (600, 3600)
    addresses = (default.servicebus.connection.address, audit.servicebus.connection.address)
    assert addresses == (None, "orders.servicebus.windows.net")
    assert audit.servicebus.setting == "ORDERS_BUS"
    assert (orders.sql, orders.in_cosmos.database, orders.in_cosmos.container) == (None, "shop", "orders")
    assert (orders.in_cosmos.lease_container, orders.in_cosmos.quarantine_container) == (
        "order-leases",
        "quarantine-orders",
    )
    assert orders.selection.types == ("order", "offer")
    assert orders.policy.event_type == "order"
    assert stock.cosmos is None
    feeds = [each.feed for each in streams if each.feed is not None]
    assert [(each.feed, each.shards, each.consumer, each.quarantine_table) for each in feeds] == [
        ("outbox.domain_event", 1, "relay", "relay.item"),
        ("outbox.domain_event", 1, "relay-audit", "relay.item_audit"),
        ("stock.Event", 4, "relay-stock-audit", "relay.item_stock_audit"),
    ]
    # They hold together what one process may hold.
    assert {each.max_bytes for each in feeds} == {5_000_000 // 3}
    two = "[outboxes.a]\nfeed = 'a.b'\n[destinations.b]\nqueue = 'q'\n[[routes]]\nto = ['default', 'b']"
    for text, share in ((two, 2_500_000), ("", 5_000_000)):
        found = streams_of(text, tmp_path, **SQL, SQL_MAX_BYTES="5000000")
        assert {each.sql.max_bytes for each in found if each.sql is not None} == {share}
        assert {each.several for each in found} == {len(found) > 1}
    assert [each.label for each in feeds] == ["default", "audit", "stock-audit"]


def test_the_first_stream_of_an_outbox_has_what_no_rule_takes(tmp_path: Path) -> None:
    for unrouted, keeps in (("quarantine", [True, False, True, False, True]), ("ignore", [False] * 5)):
        streams = streams_of(f"unrouted = '{unrouted}'\n{FILE}", tmp_path, **SQL, **BUS)

        assert [each.selection.is_first for each in streams] == [True, False, True, False, True]
        assert [each.selection.keeps_unrouted for each in streams] == keeps


def test_a_stream_is_chosen_by_its_name_and_the_only_one_without(tmp_path: Path) -> None:
    streams = streams_of(FILE, tmp_path, **SQL, **BUS)

    assert stream_of(streams, "stock-audit") is streams[4]
    assert stream_of(streams[1:2], None) is streams[1]
    with pytest.raises(UsageError, match="add --stream with one of default, audit, orders"):
        stream_of(streams, None)
    with pytest.raises(UsageError, match=r"add --stream with one of default, audit$"):
        stream_of(streams[:2], None)
    with pytest.raises(UsageError, match="--stream other: there is no such stream; there are default, audit"):
        stream_of(streams, "other")


TO = "to = ['default']"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"[outboxes.a]\nfeed = 'a.b'\n[[routes]]\n{TO}", "outboxes.a has a feed, and SQL is not set"),
        (
            "[outboxes.default]\ncontainer = 'leases'",
            "the container 'leases' in the database 'outbox' would be the outbox default and the leases: give "
            "each its own",
        ),
        (
            "fields.id = ['/source', '/id']\n[outboxes.default]\nfeed = 'x.y'",
            "fields.id of the outbox default has several places: name the column that is the event table's "
            "primary key, such as /event_id",
        ),
        (
            "fields.id = '/data/id'\n[outboxes.default]\nfeed = 'x.y'",
            "fields.id of the outbox default is within a column: name the column that is the event table's "
            "primary key, such as /event_id",
        ),
        (
            "fields.id = '/event_id'\n[outboxes.a]\ncontainer = 'c'\n[outboxes.b]\nfeed = 'x.y'",
            "fields.id of the outbox a leaves out /id: in Cosmos DB the message id is the document's id, alone or "
            "joined with other places, such as ['/source', '/id']",
        ),
        (
            "fields.key = '/data/customer'\n[outboxes.a]\ncontainer = 'c'\n[outboxes.b]\nfeed = 'x.y'",
            "fields.key of the outbox b is within a column: name a column, such as /aggregateid",
        ),
        (
            "[destinations.a]\ntopic = 'domain-events'\n[[routes]]\nto = ['a', 'default']",
            "the topic 'domain-events' of SERVICEBUS for the outbox default would be the destination of the "
            "stream default and the destination of the stream a: give each its own",
        ),
        (
            f"[outboxes.a]\ncontainer = 'data'\n[outboxes.default]\n[[routes]]\n{TO}",
            "the container 'data' in the database 'outbox' would be the outbox a and the outbox default: give "
            "each its own",
        ),
        (
            f"[outboxes.a]\ncontainer = 'leases'\n[[routes]]\n{TO}",
            "the container 'leases' in the database 'outbox' would be the outbox a and the leases: give each "
            "its own",
        ),
        (
            "[outboxes.default]\n[outboxes.a]\ncontainer = 'a'\n"
            f"[outboxes.b]\ncontainer = 'quarantine-a'\n[[routes]]\n{TO}",
            "the container 'quarantine-a' in the database 'outbox' would be the quarantine of the stream a and "
            "the outbox b: give each its own",
        ),
        (
            f"[outboxes.a]\nfeed = 'x.y'\n[outboxes.b]\nfeed = 'x.y'\n[[routes]]\n{TO}",
            "the feed 'x.y' would be the outbox a and the outbox b: give each its own",
        ),
        (
            f"[[routes]]\nwhen.type = 'ContactRenamed'\n{TO}",
            "the rule `type is 'ContactRenamed' → default` of the outbox default never counts: its events are of "
            "the type 'domainEvent'. Add the type to `types`, or name the `action`",
        ),
    ],
)
def test_places_that_streams_must_not_share_and_rules_that_never_count_are_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    environment = SQL if "x.y" in text else {}
    assert problems_of(text, tmp_path, **environment) == [f"relay.toml: {problem}"]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("fields.id = '/event_id'", "event_id"),
        ("layout = 'debezium'\nfields.id = '/event_id'", "event_id"),
        ("layout = 'debezium'", "id"),
        ("fields.id = '/Event~1Id'", "Event/Id"),
        ("properties.p = '/event_id'", "id"),
        ("", "id"),
    ],
)
def test_the_id_of_an_sql_outbox_is_in_the_column_that_relay_toml_names(
    text: str, column: str, tmp_path: Path
) -> None:
    [stream] = streams_of(f"{text}\n[outboxes.default]\nfeed = 'x.y'", tmp_path, **SQL)

    assert stream.feed is not None
    assert stream.feed.selection.fields.column_of("id") == column


@pytest.mark.parametrize(
    "text", ["", "layout = 'cloudevents'", "fields.id = '/id'", "fields.id = ['/tenant', '/id']"]
)
def test_the_message_id_of_cosmos_db_has_the_documents_id(text: str, tmp_path: Path) -> None:
    assert [each.stream for each in streams_of(text, tmp_path)] == ["default"]


STRING = "Endpoint=sb://{};SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"


@pytest.mark.parametrize(
    ("destinations", "orders_bus", "is_one"),
    [
        ("[destinations.a]\ntopic = 'Domain-Events'", None, True),
        ("[destinations.a]\nqueue = 'domain-events'", None, True),
        ("[destinations.a]\ntopic = 'domain-events'\nconnection = 'ORDERS_BUS'", STRING.format("N.x.net/"), True),
        (
            "[destinations.a]\ntopic = 'domain-events'\nconnection = 'ORDERS_BUS'",
            STRING.format("n.x.net:5671"),
            True,
        ),
        ("[destinations.a]\ntopic = 'domain-events'\nconnection = 'ORDERS_BUS'", STRING.format("n.x.net./"), True),
        ("[destinations.a]\ntopic = 'DOMAIN-events'\nconnection = 'ORDERS_BUS'", STRING.format("n.x.net"), True),
        ("[destinations.a]\ntopic = 'domain-events'\nconnection = 'ORDERS_BUS'", STRING.format("m.x.net/"), False),
        (
            "[destinations.a]\ntopic = 'domain-events'\nconnection = 'ORDERS_BUS'",
            STRING.format("n.x.net:1/"),
            False,
        ),
        ("[destinations.a]\ntopic = 'domain-event'", None, False),
    ],
)
def test_one_entity_under_two_names_is_found_as_the_service_compares_them(
    destinations: str, orders_bus: str | None, is_one: bool, tmp_path: Path
) -> None:
    (tmp_path / "relay.toml").write_text(f"{destinations}\n[[routes]]\nto = ['default', 'a']\n")
    environment = {"COSMOS": ENVIRONMENT["COSMOS"], "SERVICEBUS": STRING.format("n.x.net/")}
    environment |= {"ORDERS_BUS": orders_bus} if orders_bus else {}

    if not is_one:
        assert len(read_streams(environment, app=tmp_path)) == 2
        return
    with pytest.raises(SettingsError, match="would be the destination of the stream default and"):
        read_streams(environment, app=tmp_path)


def test_the_path_of_another_entity_is_found_in_the_string_of_every_destination(tmp_path: Path) -> None:
    orders = f"{STRING.format('orders.x.net/')};EntityPath=stock"
    text = """
        [destinations.a]
        topic = "orders"
        connection = "ORDERS_BUS"
        [destinations.b]
        topic = "audit"
        [[routes]]
        to = ["default", "a", "b"]
    """

    problems = problems_of(
        text, tmp_path, ORDERS_BUS=orders, SERVICEBUS=f"{ENVIRONMENT['SERVICEBUS']};EntityPath=domain-events"
    )

    assert [problem.partition(": ")[0] for problem in problems] == [
        "ORDERS_BUS has the EntityPath 'stock', and destinations.a.topic of relay.toml is 'orders'",
        "SERVICEBUS has the EntityPath 'domain-events', and destinations.b.topic of relay.toml is 'audit'",
    ]


def test_names_of_containers_differ_by_case(tmp_path: Path) -> None:
    text = "[outboxes.a]\ncontainer = 'Data'\nlease_container = 'Leases'\n[outboxes.b]\ncontainer = 'data'\n"

    assert [each.in_cosmos.container for each in streams_of(text, tmp_path)] == ["Data", "data"]


def test_one_namespace_by_identity_and_by_connection_string_is_one(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").write_text(
        "[destinations.a]\ntopic = 'domain-events'\nconnection = 'ORDERS_BUS'\n[[routes]]\nto = ['default', 'a']\n"
    )
    environment = {"COSMOS": ENVIRONMENT["COSMOS"], "SERVICEBUS": STRING.format("n.x.net/")}

    with pytest.raises(SettingsError, match="would be the destination of the stream default and"):
        read_streams(environment | {"ORDERS_BUS__fullyQualifiedNamespace": "N.X.net"}, app=tmp_path)


@pytest.mark.parametrize(("url", "is_one"), [("Server=s;Database=d", True), ("postgresql://h/d", False)])
def test_a_feed_under_two_names_is_one_where_names_have_no_case(url: str, is_one: bool, tmp_path: Path) -> None:
    text = f"[outboxes.a]\nfeed = 'x.y'\n[outboxes.b]\nfeed = 'X.y'\n[[routes]]\n{TO}"

    if is_one:
        assert problems_of(text, tmp_path, SQL=url) == [
            "relay.toml: the feed 'x.y' or the feed 'X.y' would be the outbox a and the outbox b: "
            "give each its own"
        ]
    else:
        (tmp_path / "relay.toml").write_text(text)
        assert len(read_streams(dict(ENVIRONMENT) | {"SQL": url}, app=tmp_path)) == 2


def test_a_feed_may_have_the_name_of_a_column_as_its_key(tmp_path: Path) -> None:
    text = "fields = { id = '/id', key = '/aggregateid' }\n[outboxes.default]\nfeed = 'x.y'"

    [stream] = streams_of(text, tmp_path, **SQL)

    assert [each.text for each in stream.selection.fields.of_columns("key")] == ["/aggregateid"]


def test_each_namespace_of_a_destination_in_use_has_to_be_set(tmp_path: Path) -> None:
    text = "[destinations.a]\ntopic = 't'\nconnection = 'A_BUS'\n"

    assert len(streams_of(text, tmp_path)) == 1
    assert problems_of(f"{text}[[routes]]\nto = ['a']", tmp_path) == [
        "A_BUS is not set: set A_BUS to a connection string, or A_BUS__fullyQualifiedNamespace to use an identity"
    ]
    # Nor is COSMOS, unless an outbox has a container.
    environment = {"SERVICEBUS": ENVIRONMENT["SERVICEBUS"], **SQL}
    (tmp_path / "relay.toml").write_text("[outboxes.a]\ncontainer = 'c'\n[outboxes.b]\nfeed = 'a.b'")
    with pytest.raises(SettingsError) as raised:
        read_streams(environment, app=tmp_path)
    assert raised.value.problems == ["relay.toml: outboxes.a has a container, and COSMOS is not set"]
    (tmp_path / "relay.toml").write_text(f"{text}[[routes]]\nto = ['a']")
    # Then SERVICEBUS is not needed.
    environment = {"COSMOS": ENVIRONMENT["COSMOS"], "A_BUS": ENVIRONMENT["SERVICEBUS"], "A_BUS_ADMIN": "x"}
    assert [each.stream for each in read_streams(environment, app=tmp_path)] == ["a"]


def test_what_is_wrong_with_the_file_and_with_the_environment_is_reported_together(tmp_path: Path) -> None:
    """The file would name the namespaces, so it is not known whether SERVICEBUS has to be set."""
    found = problems_of("routs = []", tmp_path, RELAY_MAX_ITEMS="0", SERVICEBUS="")

    assert [each.partition(" ")[0] for each in found] == ["relay.toml:", "RELAY_MAX_ITEMS"]


def test_the_file_is_beside_the_app() -> None:
    assert (APP / "function_app.py").is_file()


def test_the_file_may_have_another_name_and_has_to_exist_then(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[destinations.a]\nqueue = 'q'\n[[routes]]\nto = ['a']")

    [stream] = read_streams(ENVIRONMENT | {"RELAY_FILE": "other.toml"}, app=tmp_path)

    assert (stream.stream, stream.label, stream.several) == ("a", "a", False)
    for name in ("none.toml", "x" * 300):
        with pytest.raises(SettingsError, match=r"RELAY_FILE|cannot be read"):
            read_streams(ENVIRONMENT | {"RELAY_FILE": name}, app=tmp_path)


# selection


VALUES = st.sampled_from(["a", "ab", "b", 1, True, 1.0])
NAMED = st.sampled_from(["action", "key", "type", "/data/x", "/data/y/0"])
CONDITION = st.one_of(
    st.builds(Condition, NAMED, st.lists(VALUES, min_size=1, max_size=2).map(tuple)),
    st.builds(lambda name, prefix: Condition(name, prefix=prefix), NAMED, st.sampled_from(["a", "ab"])),
)
DESTINATIONS = ("default", "b", "c")
ROUTE = st.builds(
    Route,
    st.lists(CONDITION, max_size=2).map(tuple),
    st.lists(st.sampled_from(DESTINATIONS), min_size=1, max_size=3, unique=True).map(tuple),
)
DOCUMENT = st.fixed_dictionaries(
    {
        "id": st.just("i"),
        "partitionKey": st.sampled_from(["a", "ab", "b"]),
        "type": st.sampled_from(["a", "ab", "contact", None]),
        "data": st.fixed_dictionaries(
            {"action": VALUES}, optional={"x": VALUES, "y": st.lists(VALUES, max_size=1)}
        ),
    }
)


@given(
    routes=st.lists(ROUTE, min_size=1, max_size=4).map(tuple),
    documents=st.lists(DOCUMENT.map(SourceDocument.plain), max_size=8),
    keeps=st.booleans(),
)
def test_each_event_is_taken_by_exactly_the_streams_of_its_first_route(
    routes: tuple[Route, ...], documents: list[SourceDocument], keeps: bool
) -> None:
    named = list(dict.fromkeys(each for route in routes for each in route.to))
    streams = [
        Selection(("a", "ab"), (), routes, each, is_first=number == 0, keeps_unrouted=keeps and number == 0)
        for number, each in enumerate(named)
    ]
    for document in documents:
        takers = {each.destination for each in streams if each.takes(document)}
        route = next((each for each in routes if each.holds(document)), None)

        if document.fields["type"] not in ("a", "ab"):
            assert takers == set()
        elif route is not None:
            assert takers == set(route.to)
            assert [each.judged(event_of(document)) for each in streams if each.takes(document)] == [
                event_of(document)
            ] * len(takers)
        else:
            assert takers == ({named[0]} if keeps else set())
            aside = [each.judged(event_of(document)) for each in streams if each.takes(document)]
            assert all(isinstance(each, Rejected) for each in aside)
            whole = isinstance(document.fields["data"]["action"], str)
            assert [each.reason for each in aside if isinstance(each, Rejected)] == (
                [Reason.NO_ROUTE if whole else Reason.ACTION_NOT_STRING] if keeps else []
            )


@given(ROUTE, ROUTE, st.lists(DOCUMENT.map(SourceDocument.plain), max_size=10))
def test_a_route_that_covers_another_one_takes_each_of_its_events(
    first: Route, second: Route, documents: list[SourceDocument]
) -> None:
    if first.covers(second):
        assert [each for each in documents if second.holds(each) and not first.holds(each)] == []


@given(st.lists(ROUTE, max_size=8))
def test_the_first_route_that_covers_another_one_is_found(routes: list[Route]) -> None:
    earlier = Earlier()
    for number, route in enumerate(routes):
        covering = [place for place, each in enumerate(routes[:number]) if each.covers(route)]
        assert earlier.covering(route) == min(covering, default=None)
        earlier.add(number, route)


@pytest.mark.parametrize(
    "when",
    [
        lambda number: {"action": f"a{number}"},
        lambda number: {"type": "domainEvent", "key": f"k{number}"},
        lambda number: {"key": {"prefix": f"k{number}-"}, "type": ["domainEvent", "other"]},
        lambda number: {"/data/x": number % 30, "/data/y": [number // 30, f"y{number}"]},
    ],
    ids=["a name", "two names", "prefixes", "lists"],
)
def test_the_work_for_many_rules_grows_with_their_number(
    when: Callable[[int], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    covers = Route.covers

    def count(route: Route, other: Route) -> bool:
        nonlocal compared
        compared += 1
        return covers(route, other)

    monkeypatch.setattr(Route, "covers", count)
    parse({"routes": [{"when": when(number), "to": ["default"]} for number in range(900)]})

    assert compared <= 30 * 900
