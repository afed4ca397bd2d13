"""`python -m relay` with a relay.toml that makes several streams: what a command works on, and what it says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.management import QueueProperties

from outbox_relay.operator.cli import run
from outbox_relay.operator.examples import example
from relay.config.clients import ManagementAddress
from relay.routes.conditions import Condition
from relay.routes.selection import Route, Selection
from tests.support.operators import Run, relay_command
from tests.unit.relay.commands import ENVIRONMENT, Deployment, record_id
from tests.unit.relay.deployments import (
    Account,
    Namespace,
    _properties,
    answer,
    serve_account,
    serve_namespace,
    topic_properties,
)
from tests.unit.relay.shelf import event

FILE = """
[destinations.orders]
queue = "orders-in"
connection = "ORDERS_BUS"

[[routes]]
when = { action = "Ordered" }
to = ["orders"]

[[routes]]
when = { key = { prefix = "both" } }
to = ["default", "orders"]

[[routes]]
when = { "/data/tenant" = ["a"] }
to = ["default"]
"""
ORDERS_BUS = "Endpoint=sb://orders.test/;SharedAccessKeyName=k;SharedAccessKey=YQ=="


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The settings with two streams: `default`, to a topic, and `orders`, to a queue of another namespace.

    Its parameter is another file than that.
    """
    (tmp_path / "relay.toml").write_text(getattr(request, "param", FILE))
    return ENVIRONMENT | {"RELAY_FILE": str(tmp_path / "relay.toml"), "ORDERS_BUS": ORDERS_BUS}


# which stream


@pytest.mark.parametrize(
    "line",
    [
        "quarantine list",
        "quarantine show 3f1c0a92",
        "quarantine release --all",
        "quarantine discard --all --yes",
        "quarantine add k i --yes",
        "smoke",
        "replay --from 1h",
        "deadletters list",
        "deadletters show all/1",
        "deadletters discard all/1 --yes",
        "deadletters resubmit all/1 --yes",
    ],
)
async def test_a_command_on_one_stream_works_on_none_that_is_not_named(
    environment: dict[str, str], line: str
) -> None:
    unnamed = await relay_command(environment, *line.split())
    unknown = await relay_command(environment, *line.split(), "--stream", "other")

    assert (unnamed.code, unnamed.err) == (
        2,
        "error: relay.toml has several streams: add --stream with one of default, orders\n",
    )
    assert (unknown.code, unknown.err) == (
        2,
        "error: --stream other: there is no such stream; there are default, orders\n",
    )


# check


class Namespaces(Namespace):
    """Two namespaces: one has the topic, the other one the queue."""

    def __init__(self) -> None:
        super().__init__()
        sound = vars(topic_properties())
        members = {name: sound[name] for name in sound if name in ("status", "enable_partitioning")}
        self.queue: Any = _properties(
            QueueProperties,
            "orders-in",
            {
                **members,
                "requires_duplicate_detection": True,
                "duplicate_detection_history_time_window": "PT10M",
                "default_message_time_to_live": "P14D",
                "requires_session": False,
                "dead_lettering_on_message_expiration": True,
            },
        )
        self.asked: list[str] = []

    async def get_topic(self, name: str) -> Any:
        self.asked.append(name)
        return answer(self.topic)

    async def get_queue(self, name: str) -> Any:
        self.asked.append(name)
        return answer(self.queue)

    def get_topic_sender(self, name: str) -> Namespace:
        self.asked.append(f"sender of {name}")
        return self


@pytest.fixture
def namespaces(monkeypatch: pytest.MonkeyPatch) -> Namespaces:
    namespaces = Namespaces()
    serve_namespace(monkeypatch, namespaces)
    return namespaces


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    account.containers["quarantine-orders"] = {"partitionKey": {"paths": ["/id"]}}
    account.items["quarantine-orders"] = []
    serve_account(monkeypatch, account)
    return account


@pytest.mark.usefixtures("account")
async def test_check_explains_the_rules_and_covers_every_stream(
    environment: dict[str, str], namespaces: Namespaces
) -> None:
    checked = await relay_command(environment, "check")

    lines = checked.out.splitlines()
    assert checked.code == 1
    assert [line.removeprefix("ok       ") for line in lines[1:7]] == [
        "documents of the type 'domainEvent' are events",
        "action is 'Ordered' → queue 'orders-in'",
        "key begins with 'both' → topic 'domain-events', queue 'orders-in'",
        "/data/tenant is 'a' → topic 'domain-events'",
        "everything else → quarantine (no-route), by the stream default",
        "stream default: the container 'data' → the topic 'domain-events', with the leases in 'leases', and the "
        "quarantine 'quarantine'",
    ]
    assert lines[7].endswith(
        "stream orders: the container 'data' → the queue 'orders-in' of ORDERS_BUS, with the leases in 'leases' "
        "whose ids begin with 'orders.', and the quarantine 'quarantine-orders'"
    )
    # What the streams share is said once, and the rest with its stream.
    assert [line for line in lines if "COSMOS_CONTAINER 'data' has the" in line] == [
        "ok       COSMOS_CONTAINER 'data' has the partition key /partitionKey"
    ]
    errors = [line.removeprefix("error    ") for line in lines if line.startswith("error")]
    assert [line.partition(":")[0] for line in errors] == ["stream orders", "stream orders"]
    assert "COSMOS_QUARANTINE_CONTAINER 'quarantine-orders' has the partition key /id" in errors[0]
    assert errors[1] == (
        "stream orders: the queue 'orders-in' does not require sessions: its consumers receive events out of order"
    )
    assert any("the queue 'orders-in' has no subscriptions, as no queue has" in line for line in lines)
    assert sorted(namespaces.asked) == [
        *("domain-events", "orders-in", "sender of domain-events", "sender of orders-in"),
    ]


@pytest.mark.usefixtures("account", "namespaces")
@pytest.mark.parametrize(
    ("environment", "level", "said"),
    [
        (FILE, "warning", "in one step, those between the positions of the streams would be lost"),
        (
            f'changed_rules = "unread"\n{FILE}',
            "ok",
            "as relay.toml says: move events to another destination in two",
        ),
    ],
    indirect=["environment"],
    ids=["by default", "by choice"],
)
async def test_check_says_what_a_rule_that_moves_events_in_one_step_would_lose(
    environment: dict[str, str], level: str, said: str
) -> None:
    checked = await relay_command(environment, "check", "--json")

    [found] = [each for each in checked.json["findings"] if "changed rules" in each["what"]]
    assert found["level"] == level
    assert said in found["what"]
    assert level == "ok" or 'Set changed_rules = "later"' in found["remedy"]


@pytest.mark.usefixtures("account", "namespaces")
@pytest.mark.parametrize(
    "environment", ['[[routes]]\nwhen = { action = "Ordered" }\nto = ["default"]\n'], indirect=True, ids=[""]
)
async def test_check_says_nothing_of_changed_rules_where_an_outbox_has_one_destination(
    environment: dict[str, str],
) -> None:
    checked = await relay_command(environment, "check")

    assert "changed rules" not in checked.out


@pytest.mark.usefixtures("account", "namespaces")
async def test_check_of_one_stream_leaves_the_others_out(environment: dict[str, str]) -> None:
    checked = await relay_command(environment, "check", "--stream", "default")

    assert checked.code == 0
    assert "orders." not in checked.out
    assert "quarantine-orders" not in checked.out


@pytest.mark.usefixtures("account")
async def test_the_option_and_the_variable_of_the_management_endpoint_are_of_one_namespace(
    environment: dict[str, str], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, Any]] = []

    async def facts(settings: Any, administration: ManagementAddress) -> Any:
        read.append((settings.servicebus.setting, administration))
        return SimpleNamespace(topic=namespaces.topic, subscriptions=[], sending=262_144, largest_message=262_144)

    monkeypatch.setattr("outbox_relay.operator.cli.check.read_servicebus", facts)
    ports = {"SERVICEBUS_ADMIN": "http://a.test", "ORDERS_BUS_ADMIN": "http://b.test"}

    await relay_command(environment | ports, "check", "--servicebus-admin", "http://c.test")

    assert read == [
        ("SERVICEBUS", ManagementAddress("http://c.test")),
        ("ORDERS_BUS", ManagementAddress("http://b.test", "ORDERS_BUS_ADMIN", "ORDERS_BUS")),
    ]


# quarantine


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


async def test_release_keeps_a_record_whose_document_the_rules_give_to_another_stream(
    environment: dict[str, str], deployment: Deployment
) -> None:
    for key, action in (("k", "Ordered"), ("both-1", "Named")):
        document = event(f"{key}-{action}", key)
        deployment.records.put({**document, "data": {"action": action}})

    released = await relay_command(environment, "quarantine", "release", "--all", "--stream", "default", "--json")

    found = released.json
    assert (released.code, found["released"]) == (1, [record_id("both-1-Named")])
    assert [(each["id"], each["reason"], each["detail"]) for each in found["stillInvalid"]] == [
        (
            record_id("k-Ordered"),
            "other-stream",
            "by the rules of relay.toml, the document goes to 'orders' now, not to the stream 'default': if it is "
            "missing there, replay it with --stream; then discard the record",
        )
    ]


async def test_suggested_commands_name_the_stream(environment: dict[str, str], deployment: Deployment) -> None:
    deployment.records.put({**event("k-1", "k"), "data": {"action": "Ordered", "x": 1}}, "set-aside")
    deployment.records.put({"id": "k-2", "partitionKey": "k", "type": "domainEvent", "data": "wrong"})
    deployment.records.parked_keys = ["k"]

    run = await relay_command(environment, "quarantine", "release", "--all", "--stream", "orders")

    suggested = [line for line in run.out.splitlines() if "-m relay" in line]
    assert len(suggested) > 0
    assert all(" --stream orders " in line for line in suggested)


# the SQL worker


async def test_install_prepares_the_quarantine_of_each_stream_in_sql(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []

    async def install(backend: Any, **_: Any) -> list[str]:
        prepared.append(backend.settings.feed.quarantine_table)
        return [backend.settings.stream]

    monkeypatch.setattr("outbox_relay.operator.backends.sql.backend.SqlOperatorBackend.install", install)
    sql = {"SQL": "postgresql://127.0.0.1:1/shop"}

    done = await relay_command(environment | sql, "install", "--keep", "30d", "--json")

    assert (done.code, done.json["done"]) == (0, ["default", "orders"])
    assert prepared == ["relay.item", "relay.item_orders"]


@pytest.mark.parametrize(("words", "streams"), [([], ["default", "orders"]), (["--stream", "orders"], ["orders"])])
async def test_run_works_for_every_stream_or_for_the_one_that_is_named(
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    streams: list[str],
) -> None:
    stopped = asyncio.Event()
    stopped.set()
    monkeypatch.setattr(run, "stop_signal", lambda: stopped)
    monkeypatch.setattr(run, "_set_up_telemetry", lambda _: None)

    ended: Run = await relay_command(
        environment | {"SQL": "postgresql://127.0.0.1:1/shop"}, "run", "--json", *words
    )

    assert ended.code == 0
    assert [line.partition(" on the stream ")[2] for line in capsys.readouterr().out.splitlines()] == streams
    assert len(set(ended.json["workers"])) == len(streams)


# dead letters of a queue


async def test_a_queue_has_no_subscriptions(environment: dict[str, str]) -> None:
    said = "the queue 'orders-in' has no subscriptions: its dead letters are named as orders-in/17"

    for line in ("show all/1", "list --subscription all", "discard all/1 --yes"):
        ended = await relay_command(environment, "deadletters", *line.split(), "--stream", "orders")
        assert (ended.code, ended.err) == (2, f"error: {said}\n")
    ended = await relay_command(
        environment, "smoke", "--stream", "orders", "--action", "Ordered", "--subscription", "x"
    )
    assert (ended.code, ended.err) == (2, "error: --subscription: the queue 'orders-in' has none: leave it out\n")


# smoke


DATA = {"action": "SmokeTest", "nested": {"b": 1}}
CANARY: dict[str, Any] = {
    "id": "i",
    "partitionKey": "smoke-1",
    "type": "domainEvent",
    "data": DATA,
}


def to(*when: Condition, destination: str = "x") -> Route:
    return Route(when, (destination,))


@pytest.mark.parametrize(
    ("routes", "changed"),
    [
        ((), {}),
        ((to(),), {}),
        ((to(Condition("action", ("Real",)), destination="y"), to()), {}),
        ((to(Condition("type", ("Second",))),), {"type": "Second"}),
        ((to(Condition("key", prefix="tenant-")),), {"partitionKey": "tenant-smoke-1"}),
        ((to(Condition("action", prefix="Contact")),), {"data": {**DATA, "action": "ContactSmokeTest"}}),
        ((to(Condition("/data/tenant", (7, 8))),), {"data": {**DATA, "tenant": 7}}),
        (
            (to(Condition("/data/nested/a", prefix="x")),),
            {"data": {"action": "SmokeTest", "nested": {"b": 1, "a": "xsmoke-test"}}},
        ),
        # The first rule that leads to the stream needs a real action, and the second one none.
        (
            (to(Condition("action", ("Real",))), to(Condition("/data/tenant", ("a",)))),
            {"data": {**DATA, "tenant": "a"}},
        ),
    ],
)
def test_a_canary_gets_what_the_rules_ask_for(routes: tuple[Route, ...], changed: dict[str, Any]) -> None:
    before = repr(CANARY)

    found = example(CANARY, Selection(("domainEvent", "Second"), routes=routes, destination="x", is_first=False))

    assert found is not None
    assert found.stored == found.document.fields == CANARY | changed
    assert repr(CANARY) == before


@pytest.mark.parametrize(
    "routes",
    [
        (to(Condition("action", ("Real",))),),
        (to(Condition("key", ("real-key",))),),
        (to(Condition("id", prefix="x")),),
        (to(Condition("/data/action", ("Real",))),),
        (to(Condition("/type", ("Real",))),),
        (to(Condition("/data/nested/b/c", (1,))),),
        # An earlier rule takes what the stream would get.
        (to(Condition("/data/tenant", ("a", "b")), destination="y"), to(Condition("/data/tenant", ("a",)))),
        (to(destination="y"),),
    ],
)
@pytest.mark.parametrize("keeps", [False, True])
def test_no_canary_is_made_that_consumers_would_handle_or_that_has_no_rule(
    routes: tuple[Route, ...], keeps: bool
) -> None:
    selection = Selection(("domainEvent",), routes=routes, destination="x", is_first=keeps, keeps_unrouted=keeps)

    assert example(CANARY, selection) is None


async def test_smoke_says_why_no_event_of_it_is_one_of_the_stream(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "relay.toml").write_text(FILE.replace('key = { prefix = "both" }', 'key = "both"'))

    ended = await relay_command(environment, "smoke", "--stream", "orders")

    assert (ended.code, ended.err) == (
        2,
        "error: no event of a smoke test is one of the stream 'orders', whose rules are: action is 'Ordered' → "
        "orders; key is 'both' → default, orders. Give --action with an action that its consumers may get, or "
        "test another stream.\n",
    )
