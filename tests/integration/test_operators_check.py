"""`python -m relay check` against services that are as they should be, and that are not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.azurite import Container
from tests.support.broker import set_topic_status, topic_counts
from tests.support.leases import TriggerLeases
from tests.support.operators import Run, relay_command, relay_subprocess

WINDOW = ("--min-window", "PT5M", "--min-ttl", "PT1H")


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"RELAY_DUPLICATE_WINDOW_S": "300"}


@dataclass
class Forbidding:
    """A management endpoint that gives nobody the Manage right."""

    url: str = ""
    status: int = 401
    asked: list[str] = field(default_factory=list)

    async def refuse(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        return web.Response(status=self.status, text="'Manage,EntityRead' claims required")


@pytest.fixture
async def forbidding() -> AsyncIterator[Forbidding]:
    endpoint = Forbidding()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", endpoint.refuse)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield endpoint
    await runner.cleanup()


@contextlib.contextmanager
def time_machine(seconds: float) -> Iterator[None]:
    """This process's clock is that much ahead of the account's."""
    now = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outbox_relay.operator.backends.cosmos.reader.time.time", lambda: now() + seconds)
        yield


def levels(run: Run, level: str) -> list[str]:
    return [finding["what"] for finding in run.json["findings"] if finding["level"] == level]


async def test_the_local_stack_passes_but_for_what_it_cannot_be(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    run = await relay_command(environment, "check", *WINDOW, "--json")

    assert run.code == 0
    (warning,) = levels(run, "warning")
    assert "is not partitioned" in warning
    assert levels(run, "error") == levels(run, "unknown") == []
    assert len(levels(run, "ok")) == run.json["counts"]["ok"] == 19
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 0


async def test_containers_that_are_not_there_or_not_right_are_found(
    environment: dict[str, str], account: CosmosClient
) -> None:
    database = account.get_database_client(DATABASE)
    await database.create_container("short-lived", PartitionKey("/partitionKey"), default_ttl=3600)
    await database.create_container("by-other", PartitionKey("/other"))
    wrong = {
        "COSMOS_CONTAINER": "short-lived",
        "COSMOS_LEASE_CONTAINER": "by-other",
        "COSMOS_QUARANTINE_CONTAINER": "nowhere",
    }

    run = await relay_command(environment | wrong, "check", *WINDOW, "--json")

    assert run.code == 1
    assert [what.split(":")[0] for what in levels(run, "error")] == [
        "COSMOS_CONTAINER 'short-lived' has a default time to live of 3600 s, after which business documents are "
        "deleted",
        "COSMOS_LEASE_CONTAINER 'by-other' has the partition key /other, not /id",
        "COSMOS_LEASE_CONTAINER 'by-other' has time to live off",
        "COSMOS_QUARANTINE_CONTAINER 'nowhere' does not exist",
    ]


async def test_a_topic_that_is_closed_is_found(environment: dict[str, str], servicebus: ServiceBusServer) -> None:
    await set_topic_status(servicebus.admin_port, "SendDisabled")

    run = await relay_command(environment, "check", *WINDOW, "--json")

    assert run.code == 1
    cannot_be_sent_to, status = levels(run, "error")
    assert "Set the topic's status to Active" in cannot_be_sent_to
    assert status == "SERVICEBUS_TOPIC 'domain-events' is SendDisabled"


async def test_a_topic_and_subscriptions_made_wrong_are_found(cosmos: CosmosServer) -> None:
    def subscription(name: str, **properties: Any) -> dict[str, Any]:
        return {"Name": name, "Properties": properties}

    topic = {
        "Name": "domain-events",
        "Properties": {"RequiresDuplicateDetection": False},
        "Subscriptions": [
            subscription("plain", RequiresSession=False, DeadLetteringOnMessageExpiration=True),
            subscription("forgetful", RequiresSession=True, DeadLetteringOnMessageExpiration=False),
        ],
    }
    config = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [], "Topics": [topic]}]}}
    async with ServiceBusServer(Entities.from_document(config)) as servicebus:
        environment = {
            "COSMOS": cosmos.connection_string,
            "SERVICEBUS": servicebus.connection_string,
            "SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}",
        }
        run = await relay_command(environment, "check", *WINDOW, "--json")

    assert run.code == 1
    assert sorted(what.split(":")[0] for what in levels(run, "error")) == [
        "SERVICEBUS_TOPIC 'domain-events' does not detect duplicates",
        "subscription 'forgetful' drops expired messages",
        "subscription 'plain' does not require sessions",
    ]


async def test_a_lock_that_a_host_killed_at_its_start_left_behind_is_named(
    environment: dict[str, str], account: CosmosClient
) -> None:
    database = account.get_database_client(DATABASE)
    await database.delete_container("leases")
    leases = await database.create_container("leases", PartitionKey("/id"))
    await leases.create_item({"id": "127.0.0.1_db_coll.lock", "ttl": 30})
    fresh = await relay_command(environment, "check", *WINDOW, "--json")

    with time_machine(91):
        stale = await relay_command(environment, "check", *WINDOW, "--json")

    assert (fresh.code, stale.code) == (1, 1)
    (off,) = levels(fresh, "error")
    assert "has time to live off" in off
    assert "the lock '127.0.0.1_db_coll.lock'" in levels(stale, "error")[-1]


async def test_a_parents_lease_that_a_split_left_behind_is_named(
    environment: dict[str, str], cosmos: CosmosServer, account: CosmosClient
) -> None:
    trigger = TriggerLeases(account, edges=Edges(seed=1))
    parents = {lease.token: lease.id for lease in await trigger.pass_all()}
    sound = await relay_command(environment, "check", *WINDOW, "--json")
    children = {token: cosmos.account.split(DATABASE, "data", token)["into"] for token in parents}
    await trigger.deliver(ignore)
    left = parents.keys() & {lease.token for lease in await (await trigger.store()).all()}
    assert left

    run = await relay_command(environment, "check", *WINDOW, "--json")

    found = [what for what in levels(run, "warning") if "cover the same keys" in what]
    assert [what for what in levels(sound, "warning") if "cover the same keys" in what] == []
    assert len(found) == len(left)
    for token in left:
        leases = [parents[token], *(_sibling(parents[token], each) for each in children[token])]
        assert any(all(repr(each) in what for each in leases) for what in found)


async def test_the_leases_of_a_container_that_was_created_again_are_named(
    environment: dict[str, str], account: CosmosClient
) -> None:
    await TriggerLeases(account).pass_all()
    database = account.get_database_client(DATABASE)
    former = (await database.get_container_client("data").read())["_rid"]
    sound = await relay_command(environment, "check", *WINDOW, "--json")

    await database.delete_container("data")
    created = await database.create_container("data", PartitionKey("/partitionKey"), default_ttl=-1)
    present = await created.read()
    run = await relay_command(environment, "check", *WINDOW, "--json")
    await TriggerLeases(account).pass_all()
    restarted = await relay_command(environment, "check", *WINDOW, "--json")

    assert (sound.code, run.code, restarted.code) == (0, 1, 0)
    (found,) = levels(run, "error")
    assert f"has leases of {former!r} and none of {present['_rid']!r}" in found


async def ignore(page: list[dict[str, Any]]) -> None:
    """Handle a page of the feed by doing nothing."""


def _sibling(lease: str, token: str) -> str:
    return f"{lease.rpartition('..')[0]}..{token}"


@pytest.mark.parametrize("status", [401, 403])
async def test_without_the_right_to_manage_the_properties_are_unknown_and_the_rest_is_checked(
    environment: dict[str, str], forbidding: Forbidding, status: int
) -> None:
    forbidding.status = status

    run = await relay_command(environment, "check", "--servicebus-admin", forbidding.url, "--json")

    assert run.code == 1
    (unknown,) = levels(run, "unknown")
    assert "cannot be read with these rights" in unknown
    assert any("can be sent to" in what for what in levels(run, "ok"))
    assert forbidding.asked == ["/domain-events"]
    allowed = await relay_command(environment, "check", "--servicebus-admin", forbidding.url, "--allow-unknown")
    assert allowed.code == 0


async def test_without_a_management_endpoint_the_properties_are_unknown(
    environment: dict[str, str], cosmos: CosmosServer
) -> None:
    del environment["SERVICEBUS_ADMIN"]

    without = await relay_command(environment, "check", "--json")
    nobody = await relay_command(environment, "check", "--servicebus-admin", "http://127.0.0.1:1", "--json")
    another = await relay_command(environment, "check", "--servicebus-admin", cosmos.endpoint, "--json")

    assert [(run.code, len(levels(run, "unknown"))) for run in (without, nobody, another)] == [(1, 1)] * 3
    for run in (without, nobody):
        assert "no management endpoint answers" in levels(run, "unknown")[0]


async def test_services_that_cannot_be_reached_are_exit_code_3_and_each_is_reported(
    environment: dict[str, str], cosmos: CosmosServer, servicebus: ServiceBusServer
) -> None:
    await cosmos.stop()
    await servicebus.stop()

    run = await relay_command(environment, "check", "--json")

    assert run.code == 3
    account, topic = levels(run, "error")
    assert account.startswith("the Cosmos DB account cannot be reached")
    assert topic.startswith("SERVICEBUS_TOPIC 'domain-events' cannot be sent to")


async def test_credentials_that_are_refused_are_exit_code_3(environment: dict[str, str]) -> None:
    wrong_key = {
        "COSMOS": environment["COSMOS"].replace("AccountKey=", "AccountKey=AAAA"),
        "SERVICEBUS": environment["SERVICEBUS"].replace("SharedAccessKey=", "SharedAccessKey=AAAA"),
    }

    run = await relay_command(environment | wrong_key, "check", "--json")

    assert run.code == 3
    account, topic = levels(run, "error")
    assert account.startswith("the Cosmos DB account refused the credentials")
    assert "the namespace refused the credentials" in topic
    assert "AAAA" not in run.out + run.err


async def test_the_command_runs_as_a_process(environment: dict[str, str]) -> None:
    run = await relay_subprocess(environment, "check", *WINDOW)

    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines()[0] == "ok       the settings are complete and well-formed"


async def test_where_large_events_go_is_written_to_without_a_write(
    environment: dict[str, str], blobs: Container
) -> None:
    fine = await relay_command(environment | blobs.settings, "check", *WINDOW, "--json")
    missing = await relay_command(
        environment | blobs.settings | {"RELAY_BLOB_CONTAINER": "other"}, "check", *WINDOW, "--json"
    )
    blobs.faults = [403]
    refused = await relay_command(environment | blobs.settings, "check", *WINDOW, "--json")

    container = f"RELAY_BLOB_CONTAINER '{blobs.settings['RELAY_BLOB_CONTAINER']}'"
    assert (fine.code, levels(fine, "error")) == (0, [])
    assert f"{container} can be written to" in levels(fine, "ok")
    assert await blobs.stored() == {}
    assert (missing.code, refused.code) == (1, 1)
    assert "ContainerNotFound" in levels(missing, "error")[0]
    assert f"{container} cannot be written to" in levels(refused, "error")[0]
    [remedy] = [each["remedy"] for each in refused.json["findings"] if each["level"] == "error"]
    assert "Storage Blob Data Contributor" in remedy
