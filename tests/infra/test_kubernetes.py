"""The manifest for Kubernetes: settings that the relay reads, a query that PostgreSQL runs, and safe limits."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from changefeed import connect_async
from changefeed.statements import Statement
from relay.settings import Settings
from relay.sql.database import needs_token
from tests.infra.checks.settings import known_settings
from tests.infra.project import ROOT
from tests.support.outbox import event
from tests.support.sql_outbox import SqlOutbox, provisioned


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

    assert set(environment) <= known_settings(environment)
    assert settings.sql is not None
    assert needs_token(settings.sql.connection_string)
    # The identity is the pod's, by workload identity.
    assert settings.servicebus.identity is not None
    assert not settings.servicebus.identity.managed


def test_there_is_no_secret(objects: dict[str, Any]) -> None:
    assert set(objects) == {
        "ServiceAccount",
        "Deployment",
        "PodDisruptionBudget",
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
    assert not {"livenessProbe", "readinessProbe", "startupProbe", "ports"} & set(container)
    assert "limits" in container["resources"]


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
