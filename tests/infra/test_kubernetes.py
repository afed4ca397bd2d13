"""The manifest for Kubernetes: settings and probes of the relay, a query that PostgreSQL runs, and safe limits."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml  # type: ignore[import-untyped]
from azure.identity import ManagedIdentityCredential
from azure.monitor.opentelemetry.exporter._connection_string_parser import ConnectionStringParser
from azure.monitor.opentelemetry.exporter.export._base import _get_authentication_credential

from outbox_relay.changefeed import AsyncConsumer, DatabaseError, connect_async
from outbox_relay.changefeed.statements import Statement
from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.cli.probes import serving_probes
from relay.backends.sql.database import needs_token
from relay.config.settings import Settings
from relay.core.health import Health
from tests.infra.checks.settings import known_settings
from tests.infra.project import ROOT
from tests.support.outbox import event
from tests.support.pages import section
from tests.support.sql_outbox import SqlOutbox, provisioned

KEDA = "outbox-relay-keda"
PAGE = ROOT / "infra/README.md"
REFUSED = (
    'delete from changefeed."outbox:outbox.domain_event"',
    'select 1 from changefeed."feed:outbox.domain_event"',
    'select 1 from changefeed."claim:outbox.domain_event"',
    "select 1 from outbox.domain_event",
    "select 1 from relay.item",
)
CONNECTION, AUTHENTICATION = "APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"
EXPORTER = {CONNECTION, AUTHENTICATION}
WORKLOAD_IDENTITY = {
    "AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000001",
    "AZURE_TENANT_ID": "00000000-0000-0000-0000-000000000002",
    "AZURE_FEDERATED_TOKEN_FILE": "/var/run/secrets/azure/tokens/azure-identity-token",
    "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
}
"""https://azure.github.io/azure-workload-identity/docs/topics/mutating-admission-webhook.html"""


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    text = (ROOT / "infra/kubernetes/relay.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(objects: dict[str, Any]) -> Any:
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def environment(pod: Any) -> dict[str, str]:
    [container] = pod["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_the_relay_understands_every_setting_and_no_password_is_among_them(environment: dict[str, str]) -> None:
    settings = Settings.from_environment(environment)

    assert set(environment) <= known_settings(environment) | EXPORTER
    assert settings.sql is not None
    assert needs_token(settings.sql.connection_string)
    # The identity is the pod's, by workload identity.
    assert settings.servicebus.connection.identity is not None
    assert not settings.servicebus.connection.identity.managed


def test_there_is_no_secret(objects: dict[str, Any]) -> None:
    assert set(objects) == {
        "ServiceAccount",
        "Deployment",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "TriggerAuthentication",
        "ScaledObject",
    }
    assert objects["TriggerAuthentication"]["spec"]["podIdentity"]["provider"] == "azure-workload"


def test_every_object_belongs_to_the_same_deployment(objects: dict[str, Any], pod: Any) -> None:
    deployment = objects["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selected = deployment["spec"]["selector"]["matchLabels"]
    [trigger] = objects["ScaledObject"]["spec"]["triggers"]

    assert selected.items() <= labels.items()
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == selected
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == selected
    assert objects["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert trigger["authenticationRef"]["name"] == objects["TriggerAuthentication"]["metadata"]["name"]
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert labels["azure.workload.identity/use"] == "true"


def test_replicas_stay_between_two_and_the_number_of_shards(
    objects: dict[str, Any], environment: dict[str, str]
) -> None:
    scale = objects["ScaledObject"]["spec"]

    assert 2 <= scale["minReplicaCount"] <= scale["maxReplicaCount"] <= int(environment["SQL_SHARDS"])
    # KEDA would not set the number where the deployment did.
    assert "replicas" not in objects["Deployment"]["spec"]


def test_a_pod_has_time_to_finish_its_pages(pod: Any, environment: dict[str, str]) -> None:
    assert pod["terminationGracePeriodSeconds"] >= float(environment["SQL_CLAIM_S"]) + 10


def test_the_container_runs_without_rights(pod: Any) -> None:
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "limits" in container["resources"]
    assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", container["image"])


def test_the_api_of_kubernetes_is_out_of_reach(objects: dict[str, Any], pod: Any) -> None:
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False


async def test_the_probes_ask_what_the_command_answers(pod: Any) -> None:
    [container] = pod["containers"]
    [port] = container["ports"]
    words = container["command"]
    paths = {name: container[name]["httpGet"]["path"] for name in ("livenessProbe", "startupProbe")}
    health = Health(10.0)

    assert words[:4] == ["python", "-m", "relay", "run"]
    given = PROGRAM.parse(words[3:])
    assert given.options["health_port"] == port["containerPort"]
    assert {container[f"{name}Probe"]["httpGet"]["port"] for name in ("liveness", "readiness", "startup")} == {
        port["name"]
    }
    assert {*paths.values()} == {"/livez"}
    async with serving_probes([health], 0) as own, aiohttp.ClientSession(f"http://127.0.0.1:{own}") as client:
        for path, status in (("/livez", 200), (container["readinessProbe"]["httpGet"]["path"], 503)):
            async with client.get(path) as response:
                assert response.status == status, path


def test_replicas_that_are_not_ready_do_not_keep_a_node_from_being_drained(objects: dict[str, Any]) -> None:
    assert objects["PodDisruptionBudget"]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def ports_of(rules: list[Any]) -> set[tuple[str, int]]:
    return {(each["protocol"], each["port"]) for rule in rules for each in rule["ports"]}


def test_the_network_is_closed_but_for_probes_and_what_the_relay_connects_to(
    objects: dict[str, Any], pod: Any, environment: dict[str, str]
) -> None:
    policy = objects["NetworkPolicy"]["spec"]
    [container] = pod["containers"]
    [dns, services] = policy["egress"]
    database = urlsplit(environment["SQL"]).port
    assert database is not None
    telemetry = dict(part.split("=", 1) for part in environment[CONNECTION].split(";"))["IngestionEndpoint"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert ports_of(policy["ingress"]) == {("TCP", port["containerPort"]) for port in container["ports"]}
    assert ports_of([dns]) == {("UDP", 53), ("TCP", 53)}
    assert dns["to"][0]["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
    assert ports_of([services]) == {("TCP", database), ("TCP", 5671), ("TCP", 443)}
    assert urlsplit(telemetry).scheme == "https"
    # The address where the node's identity can be had.
    assert services["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}}]


def test_telemetry_is_sent_as_the_pods_identity(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTHENTICATION, environment[AUTHENTICATION])
    for name, value in WORKLOAD_IDENTITY.items():
        monkeypatch.setenv(name, value)

    credential = _get_authentication_credential()

    # It takes the identity from the variables that workload identity sets.
    assert isinstance(credential, ManagedIdentityCredential)
    assert type(credential._credential).__name__ == "WorkloadIdentityCredential"
    assert ConnectionStringParser(environment[CONNECTION]).endpoint.startswith("https://")


def test_keda_has_an_identity_of_its_own(objects: dict[str, Any], environment: dict[str, str]) -> None:
    [trigger] = objects["ScaledObject"]["spec"]["triggers"]
    relays = objects["ServiceAccount"]["metadata"]["annotations"]["azure.workload.identity/client-id"]

    assert objects["TriggerAuthentication"]["spec"]["podIdentity"]["identityId"] != relays
    assert trigger["metadata"]["userName"] == KEDA
    assert urlsplit(environment["SQL"]).username != KEDA


async def test_the_documented_grants_suffice_for_kedas_query_and_for_nothing_else(
    objects: dict[str, Any], postgres_database: str
) -> None:
    [trigger] = objects["ScaledObject"]["spec"]["triggers"]
    [grants] = section(PAGE, "Kubernetes", "sql")
    owner = await provisioned(postgres_database)
    try:
        await owner.execute(Statement(f'drop role if exists "{KEDA}"'))
        await owner.execute(Statement(f'create role "{KEDA}"'))
        for each in grants.split(";")[:-1]:
            await owner.execute(Statement(each))
        await owner.execute(Statement(f'set role "{KEDA}"'))
        counted = await owner.execute(Statement(trigger["metadata"]["query"]))
        for refused in REFUSED:
            with pytest.raises(DatabaseError, match="permission denied"):
                await owner.execute(Statement(refused))
        await owner.execute(Statement("reset role"))
        await owner.execute(Statement(f'drop owned by "{KEDA}"'))
        await owner.execute(Statement(f'drop role "{KEDA}"'))
    finally:
        await owner.close()

    assert counted.rows == [(0,)]


async def test_the_query_counts_what_no_reader_has_taken_up_to_the_most_replicas(
    objects: dict[str, Any], environment: dict[str, str], postgres_database: str
) -> None:
    scale = objects["ScaledObject"]["spec"]
    [trigger] = scale["triggers"]
    query, target = trigger["metadata"]["query"], int(trigger["metadata"]["targetQueryValue"])
    session = await provisioned(postgres_database)
    reader = await connect_async(postgres_database)
    try:
        before = await reader.execute(Statement(query))
        await SqlOutbox(session).commit(event("e1", "k"), event("e2", "k"))
        waiting = await reader.execute(Statement(query))
    finally:
        await reader.close()
        await session.close()

    assert trigger["type"] == "postgresql"
    assert environment["SQL_FEED"] in query
    assert (before.rows, waiting.rows) == ([(0,)], [(2,)])
    assert f"limit {target * scale['maxReplicaCount']})" in query
    assert trigger["metadata"]["host"] in environment["SQL"]


async def test_the_query_of_a_stream_counts_what_lies_behind_its_cursor(postgres_database: str) -> None:
    [text] = section(PAGE, "Kubernetes", "yaml")
    [trigger] = yaml.safe_load(text)
    session = await provisioned(postgres_database)
    try:
        for identifier in ("e1", "e2"):
            await session.execute(
                Statement(
                    'insert into changefeed."feed:outbox.domain_event" (shard_id, ulid, id) '
                    "values (0, gen_random_uuid(), ?)",
                    (identifier,),
                )
            )
        await AsyncConsumer(session, "outbox.domain_event", "relay").claims([0])
        before = await session.execute(Statement(trigger["metadata"]["query"]))
        await AsyncConsumer(session, "outbox.domain_event", "relay-orders").claims([0])
        behind = await session.execute(Statement(trigger["metadata"]["query"]))
    finally:
        await session.close()

    assert (before.rows, behind.rows) == ([(0,)], [(2,)])
