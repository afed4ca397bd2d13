"""relay.toml: what is read from it, what is wrong with it, and that its JSON Schema says the same."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import SettingsError
from relay.routes.conditions import Condition
from relay.routes.file import Destination, Source, parse, read
from relay.routes.pointers import Pointer
from relay.routes.selection import Route
from tests.support.pages import ROOT

PAGE = (ROOT / "docs/routes.md").read_text(encoding="utf-8")
MAPPED = {"layout", "events", "fields", "properties", "message"}
"""The keys about the documents of an outbox."""

SCHEMA = jsonschema_rs.validator_for(json.loads((ROOT / "docs/contract/relay.schema.json").read_text()))

WHOLE = """
types = ["domainEvent", "orderEvent"]
unrouted = "ignore"

[outboxes.default]
database = "shop"
[outboxes.orders]
feed = "outbox.Orders"
shards = 4
types = ["order"]

[destinations.audit]
queue = "audit"
connection = "AUDIT_BUS"
duplicate_window_s = 3600
[destinations.contacts]
topic = "contacts"

[[routes]]
outbox = "orders"
when = { type = "order", "/data/total" = [1, 2.5], "/a~1b" = true }
to = ["audit", "contacts", "audit"]
[[routes]]
when = { key = { prefix = "vip-" } }
to = ["contacts"]
[[routes]]
to = ["default"]
"""


def problems_of(text: str, tmp_path: Path) -> list[str]:
    (file := tmp_path / "relay.toml").write_text(text)
    with pytest.raises(SettingsError) as raised:
        read(file)
    return list(raised.value.problems)


def test_every_key_of_the_file_is_read(tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text(WHOLE)

    found = read(file)

    types = ("domainEvent", "orderEvent")
    assert found.sources == {
        "default": Source("default", database="shop", types=types),
        "orders": Source("orders", feed="outbox.Orders", shards=4, types=("order",)),
    }
    assert found.destinations == {
        "audit": Destination("audit", "audit", is_queue=True, connection="AUDIT_BUS", duplicate_window_s=3600),
        "contacts": Destination("contacts", "contacts"),
        "default": Destination("default"),
    }
    values = Condition("/data/total", (1, 2.5)), Condition("/a~1b", (True,))
    assert found.routes == (
        ("orders", Route((Condition("type", ("order",)), *values), ("audit", "contacts"))),
        (None, Route((Condition("key", prefix="vip-"),), ("contacts",))),
        (None, Route((), ("default",))),
    )
    assert [len(found.routes_of(name)) for name in found.sources] == [2, 3]
    assert not found.keeps_unrouted


def test_a_file_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_bytes(b"\xff")

    with pytest.raises(SettingsError, match=r"relay\.toml cannot be read"):
        read(file)


def test_a_file_that_is_not_there_is_an_error_only_if_a_setting_names_it(tmp_path: Path) -> None:
    assert read(tmp_path / "relay.toml") == parse({})
    with pytest.raises(SettingsError, match=r"RELAY_FILE names 'other.toml': there is no such file in"):
        read(tmp_path / "other.toml", named_by="RELAY_FILE")


TO = "to = ['default']"


def wrong_files() -> Iterator[tuple[str, list[str]]]:
    text = (ROOT / "tests/unit/relay/wrong_relay_files.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        lines = block.strip().splitlines()
        problems = [line.removeprefix("=> ") for line in lines if line.startswith("=> ")]
        yield "\n".join(line for line in lines if not line.startswith("=> ")), problems


@pytest.mark.parametrize(("text", "problems"), list(wrong_files()))
def test_what_is_wrong_is_named_by_its_path_with_the_remedy(
    text: str, problems: list[str], tmp_path: Path
) -> None:
    assert len(problems) > 0
    assert problems_of(text, tmp_path) == [f"relay.toml: {each}" for each in problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1\na = 2\n", " is no TOML: Cannot overwrite a value (at line 2, column 6)"),
        (f"types = {'1' * 5000}", " is no TOML: Exceeds the limit (4300 digits) for integer string conversion"),
        (f"types = 0x{'f' * 5000}", ": types is a value of the type int: write a list of texts"),
        (f"types = {'[' * 5000}", " has tables or lists within one another without end"),
        (f"types = '{'x' * 500}'", ": types is a value of 500 characters that is not shown"),
        (f"types = '{'x' * 78}'", f": types is '{'x' * 78}': write a list of texts"),
    ],
    ids=len,
)
def test_a_file_that_cannot_be_parsed_or_shown_is_an_error_too(text: str, problem: str, tmp_path: Path) -> None:
    [found] = problems_of(text, tmp_path)

    assert found.startswith(f"relay.toml{problem}")


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text("unrouted = 'ignore'", encoding="utf-8-sig")

    assert not read(file).keeps_unrouted


@pytest.mark.parametrize("name", ["DeadLetterReason", "DeadLetterErrorDescription"])
def test_a_property_that_the_broker_gives_a_dead_letter_is_refused(name: str, tmp_path: Path) -> None:
    [found] = problems_of(f"[properties]\n{name} = '/data/x'", tmp_path)

    assert f"properties.{name} is a property that Service Bus gives a dead letter" in found


@pytest.mark.parametrize(
    "text",
    [
        f"[[routes]]\nwhen = {{ type = ['a', 'b'] }}\n{TO}\n[[routes]]\nwhen = {{ type = ['b', 'c'] }}\n{TO}",
        f"[[routes]]\nwhen.key = {{ prefix = 'ab' }}\n{TO}\n[[routes]]\nwhen.key = {{ prefix = 'a' }}\n{TO}",
        f"[[routes]]\nwhen = {{ type = 'a', key = 'k' }}\n{TO}\n[[routes]]\nwhen = {{ type = 'a' }}\n{TO}",
        f"[[routes]]\nwhen = {{ '/a' = 1 }}\n{TO}\n[[routes]]\nwhen = {{ '/a' = true }}\n{TO}",
        # One of the outboxes comes as far as the last route.
        "[outboxes.a]\ncontainer = 'c'\n[outboxes.b]\ncontainer = 'd'\n"
        f"[[routes]]\noutbox = 'a'\n{TO}\n[[routes]]\nwhen.type = 'x'\n{TO}\n[[routes]]\noutbox = 'b'\n{TO}",
    ],
    ids=len,
)
def test_a_route_that_can_count_is_not_refused(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text(text)

    read(file)


FEED = "[outboxes.a]\nfeed = 'o.Event'\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{FEED}shards = 1", []),
        (f"{FEED}shards = 1024", []),
        (f"{FEED}shards = 0", ["outboxes.a.shards"]),
        (f"{FEED}shards = 1025", ["outboxes.a.shards"]),
        # Its feed may be named by a setting.
        ("[outboxes.default]\nshards = 2", []),
        ("[outboxes.default]\ncontainer = 'c'\nshards = 2", ["outboxes.default.shards"]),
        ("[outboxes.a]\ncontainer = 'c'\nshards = 2", ["outboxes.a.shards"]),
        ("types = []", []),
        ("[[routes]]\nto = []", ["routes[0].to"]),
        ("[destinations.a]\ntopic = 't'\nother = 1", ["destinations.a.other"]),
        ("[fields]\nid = ['/source', '/n']", []),
        ("[fields]\nid = []", ["fields.id"]),
        ("[fields]\nkey = ['/a', '/b']", ["fields.key"]),
        ("[properties]\n'' = '/a'", ["properties."]),
        (f"[properties]\n{'p' * 128} = '/a'", []),
        (f"[properties]\n{'p' * 129} = '/a'", [f"properties.{'p' * 129}"]),
        ("[[routes]]\nto = ['default']\nother = 1", ["routes[0].other"]),
        ("[[routes]]\nto = ['default']\nwhen = {a = {}, b = {}}", ["routes[0].when.a", "routes[0].when.b"]),
        (
            f"{FEED}[outboxes.default]\n"
            + 2 * "[[routes]]\noutbox = 'a'\nto = ['default']\n"
            + "[[routes]]\nto = ['default']",
            ["routes[1]"],
        ),
    ],
)
def test_each_limit_is_where_the_page_says(text: str, wrong: list[str], tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text(text)
    found = []
    try:
        read(file)
    except SettingsError as error:
        found = [problem.removeprefix("relay.toml: ").partition(" ")[0] for problem in error.problems]

    assert found == wrong


def test_everything_that_is_wrong_is_said_at_once_and_nothing_secret(tmp_path: Path) -> None:
    key = "Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
    text = f"""
        tipes = ["{key}"]
        unrouted = "{key}"
        [destinations.a]
        topic = ["{key}"]
        connection = "{key}"
        [[routes]]
        when = {{ typ = 1 }}
        to = ["{key}"]
    """

    found = problems_of(text, tmp_path)

    assert [each.split()[1] for each in found] == [
        *("destinations.a.topic", "destinations.a.connection", "unrouted"),
        *("routes[0].when.typ", "routes[0].to", "tipes"),
    ]
    assert "Shared" not in "".join(found)


def test_a_pointer_is_escaped_as_rfc_6901_says() -> None:
    assert Pointer.parse("/a~1b/~0~01").names == ("a/b", "~~1")
    for wrong in ("/~", "/~2", "/a~~01", "/~~"):
        with pytest.raises(ValueError, match="write ~ as ~0"):
            Pointer.parse(wrong)


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_the_examples_of_the_page_are_read(text: str) -> None:
    content = tomllib.loads(text)
    named = {each for route in content.get("routes", []) for each in route["to"]} - {"default"}
    destinations = {each: {"topic": each} for each in named} | content.get("destinations", {})

    assert len(parse(content | {"destinations": destinations}).routes) > 0


def test_the_page_has_every_key_of_the_file() -> None:
    for name in ("outbox", "destination", "route"):
        keys = json.loads((ROOT / "docs/contract/relay.schema.json").read_text())["$defs"][name]["properties"]
        assert {key for key in keys if f"`{key}`" not in PAGE} <= MAPPED


# the file and its schema, both ways


NAMES = st.sampled_from(["a", "b", "default", "Bad", "a-b", "x" * 24, "x" * 25])
TEXTS = st.sampled_from(["t", "", " ", "a.b", ".b", "a.", "domainEvent", "\x1c", "SERVICEBUS", "a\nb"])
SCALARS = st.one_of(TEXTS, st.booleans(), st.integers(-3, 2000), st.just(2.5))
LISTS = st.lists(TEXTS, max_size=2)
CONDITIONS = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.fixed_dictionaries({"prefix": SCALARS}),
    st.just({"prefix": "a", "suffix": "b"}),
)
POINTERS = st.sampled_from(["id", "key", "type", "action", "data", "/data/a", "/~0", "/~", "/~~01", "", "/"])


def nearly(members: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Tables with these members or some of them, and now and then with another one or another value."""
    odd = {name: st.one_of(each, each, each, SCALARS, LISTS) for name, each in members.items()}
    known = st.fixed_dictionaries({}, optional=odd)
    return st.one_of(known, known, known, st.builds(lambda found: {**found, "unknown": 1}, known))


PLACES = st.one_of(POINTERS, st.sampled_from(["/0", "/a/1", "/01b/c"]))
PROPERTIES = st.one_of(PLACES, nearly({"from": PLACES, "as": st.sampled_from(["long", "date", "int"])}))
MAPPING: dict[str, st.SearchStrategy[Any]] = {
    "layout": st.sampled_from(["cloudevents", "debezium", "article", "other"]),
    "types": LISTS,
    "events": st.dictionaries(POINTERS, CONDITIONS, max_size=1),
    "fields": nearly({"id": st.one_of(PLACES, st.lists(PLACES, max_size=2)), "type": PLACES, "data": PLACES}),
    "properties": st.dictionaries(
        st.sampled_from(["a", "", "type", "x" * 128, "x" * 129]), PROPERTIES, max_size=2
    ),
    "message": nearly({"subject": PLACES, "time_to_live": PLACES}),
}
OUTBOXES = nearly(
    {
        **MAPPING,
        **dict.fromkeys(("container", "database", "lease_container", "quarantine_container", "feed"), TEXTS),
        "shards": st.integers(-1, 1025),
    }
)
DESTINATIONS = nearly(
    {"topic": TEXTS, "queue": TEXTS, "connection": TEXTS, "duplicate_window_s": st.sampled_from([19, 20, 604_801])}
)
ROUTES = nearly(
    {"outbox": NAMES, "when": st.dictionaries(POINTERS, CONDITIONS, max_size=2), "to": st.lists(NAMES, max_size=2)}
)
FILES = nearly(
    {
        **MAPPING,
        "unrouted": st.sampled_from(["quarantine", "ignore", "drop"]),
        "changed_rules": st.sampled_from(["unread", "later", "past"]),
        "outboxes": st.dictionaries(NAMES, OUTBOXES, max_size=2),
        "destinations": st.dictionaries(NAMES, DESTINATIONS, max_size=2),
        "routes": st.lists(ROUTES, max_size=2),
    }
)

# What the schema leaves to the parser: its $comment names them.
CROSS_REFERENCES = ("never counts: ", "has no route: ", "is also the name of", ": there are ", ".outbox is '")


def parsed(content: dict[str, Any]) -> list[str]:
    """Return the problems of the content."""
    try:
        parse(content)
    except SettingsError as error:
        return list(error.problems)
    return []


def is_cross_reference(problem: str) -> bool:
    return any(each in problem for each in CROSS_REFERENCES) and " is unknown: " not in problem


@given(FILES)
def test_the_schema_accepts_what_the_parser_accepts_and_nothing_else(content: dict[str, Any]) -> None:
    found = [each for each in parsed(content) if not is_cross_reference(each)]

    assert SCHEMA.is_valid(content) is (not found), (content, found)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.datetimes()),
    lambda each: st.one_of(st.lists(each, max_size=3), st.dictionaries(st.text(max_size=5), each, max_size=3)),
    max_leaves=8,
)
KEYS = st.sampled_from(["types", "unrouted", "outboxes", "destinations", "routes", "other"])


@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_no_content_raises_anything_else(content: dict[str, Any]) -> None:
    found = parsed(content)

    assert all(each.startswith("relay.toml: ") for each in found)
    assert any("other is unknown" in each for each in found) is ("other" in content)
