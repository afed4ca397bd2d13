"""The pytest plugin: a Cosmos DB database and a Service Bus namespace of its own for each test that asks.

The emulators run on a separate thread, in each process of pytest-xdist. Tests may be plain functions, or
run on any event loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    # Imported when first used: pytest loads this module in every project of the environment.
    from outbox_relay.emulators.testing import BackgroundLoop, CosmosAccount, CosmosDatabase, ServiceBusNamespace

_numbers = itertools.count(1)

_MARKERS = (
    "cosmos(containers): containers of the test's cosmos_database, each 'NAME:/partitionKeyPath[:TTL]'",
    "servicebus(queues, topics, entities, **options): entities of the test's servicebus_namespace: queues and "
    "topics by name, topics as 'NAME/SUBSCRIPTION' too, or as mappings with the properties of Config.json; or "
    "entities, the path of such a file. Options are those of ServiceBusServer, such as tier",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("outbox-relay-emulators").addoption(
        "--emulators-seed",
        default="1",
        metavar="SEED",
        help="draw the behaviour that Azure leaves open from this number; 'off' for the kindest (default: 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture(scope="session")
def emulators_seed(pytestconfig: pytest.Config) -> int | None:
    """The seed that `--emulators-seed` sets; None if it is off."""
    text = pytestconfig.getoption("--emulators-seed")
    if text == "off":
        return None
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"--emulators-seed is '{text}': give a whole number, or 'off'") from None


@pytest.fixture(scope="session")
def emulators_loop() -> Iterator[BackgroundLoop]:
    """The event loop, on its own thread, on which the emulators run."""
    from outbox_relay.emulators.testing import background_loop

    with background_loop() as loop:
        yield loop


@pytest.fixture(scope="session")
def cosmos_account(emulators_loop: BackgroundLoop, emulators_seed: int | None) -> Iterator[CosmosAccount]:
    """A Cosmos DB account that serves the whole session."""
    from outbox_relay.emulators.testing import cosmos_account

    with cosmos_account(seed=emulators_seed, loop=emulators_loop) as account:
        yield account


@pytest.fixture
def cosmos_database(cosmos_account: CosmosAccount, request: pytest.FixtureRequest) -> Iterator[CosmosDatabase]:
    """A database of the test's own, with the containers of its `cosmos` marker, deleted after the test.

    The account's faults end with the test, and what the service leaves open is drawn anew for each test.
    """
    cosmos_account.restart_edges()
    database = cosmos_account.create_database(
        f"test-{next(_numbers)}", **_arguments(request, "cosmos", "containers")
    )
    yield database
    cosmos_account.remove_faults()
    cosmos_account.drop_database(database.name)


@pytest.fixture
def servicebus_namespace(
    emulators_loop: BackgroundLoop, emulators_seed: int | None, request: pytest.FixtureRequest
) -> Iterator[ServiceBusNamespace]:
    """A namespace of the test's own, with the entities of its `servicebus` marker."""
    from outbox_relay.emulators.servicebus.entities import Entities
    from outbox_relay.emulators.testing import entities_of, servicebus_namespace

    options = _arguments(request, "servicebus")
    path = options.pop("entities", None)
    named = {name: options.pop(name) for name in ("queues", "topics") if name in options}
    if path is not None and named:
        raise pytest.UsageError("the servicebus marker takes entities, or queues and topics, not both")
    entities = entities_of(**named) if path is None else Entities.from_file(path)
    with servicebus_namespace(entities, seed=emulators_seed, loop=emulators_loop, **options) as namespace:
        yield namespace


def _arguments(request: pytest.FixtureRequest, marker: str, *known: str) -> dict[str, Any]:
    """Return the keyword arguments of the closest marker of that name.

    They are limited to `known` ones where any are given.
    """
    found = request.node.get_closest_marker(marker)
    if found is None:
        return {}
    if found.args or (known and found.kwargs.keys() - set(known)):
        raise pytest.UsageError(f"the {marker} marker takes keyword arguments: see `pytest --markers`")
    return dict(found.kwargs)
