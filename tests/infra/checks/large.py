"""Where the contents of large events are stored: off by default, and for longer than any message waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.config.settings import Settings
from relay.core.times import parse_duration
from tests.infra.checks.app import OF_STORAGE
from tests.infra.deployment import Deployment, DeploymentFailure
from tests.infra.project import (
    CONTAINERS,
    DIAGNOSTICS,
    LOCKS,
    STORAGE,
    SUBSCRIPTIONS,
    TOPICS,
    Project,
    app_settings,
    azure_rights,
    check,
    check_properties,
    relay_identity,
    worker_settings,
)

LIFECYCLE = f"{STORAGE}/managementPolicies"
BLOB_CONTAINERS = f"{STORAGE}/blobServices/containers"
ON: dict[str, Any] = {
    "relayLarge": "claim-check",
    "operatorPrincipalIds": ["operator"],
    "subscriptions": [{"name": "all", "receiverPrincipalIds": ["consumer"]}],
}
PRIVATE = {"privateNetworking": True, "serviceBusSku": "Premium"}


def both(project: Project, **given: Any) -> tuple[tuple[Deployment, dict[str, str]], ...]:
    """A deployment of each template with large events in Blob Storage, and the relay's settings."""
    main, sql = project.deploy(**ON | given), project.deploy_sql(**ON | given)
    return (main, app_settings(main)), (sql, worker_settings(sql))


def kept_in_days(deployment: Deployment) -> int:
    """Days that the lifecycle rule keeps the contents."""
    [rule] = deployment.one(LIFECYCLE).at("properties.policy.rules")
    [container] = contents(deployment)
    assert (rule["enabled"], rule["type"]) == (True, "Lifecycle")
    # With the slash, no other container has it.
    assert rule["definition"]["filters"] == {
        "blobTypes": ["blockBlob"],
        "prefixMatch": [f"{container.rpartition('/')[2]}/"],
    }
    [(what, limit)] = rule["definition"]["actions"]["baseBlob"].items()
    assert what == "delete"
    return int(limit["daysAfterModificationGreaterThan"])


def contents(deployment: Deployment) -> list[str]:
    """The container of large events."""
    return [each.name for each in deployment.of(BLOB_CONTAINERS) if "app-package" not in each.name]


@check
def nothing_is_deployed_for_large_events_by_default(project: Project) -> None:
    for deployment in (project.bare, *project.both, *project.sql_deployments.values()):
        assert not deployment.of(LIFECYCLE)
        assert not contents(deployment)
        assert "BLOBS__serviceUri" not in json.dumps([each.body for each in deployment.resources], default=dict)


@check
def the_relay_writes_large_events_into_its_container(project: Project) -> None:
    for deployment, settings in both(project, relayBlobContainer="big"):
        [name] = contents(deployment)
        account, _, container = name.split("/")
        assert container == settings["RELAY_BLOB_CONTAINER"] == "big"
        assert settings["RELAY_LARGE"] == "claim-check"
        assert settings["BLOBS__serviceUri"] == f"https://{account}.blob.core.windows.net/"
        assert settings["BLOBS__credential"] == "managedidentity"
        assert settings["BLOBS__clientId"] == settings["SERVICEBUS__clientId"]
        stored = Settings.from_environment(settings).policy.claim_check
        assert stored is not None
        assert (stored.container, stored.connection.address) == ("big", settings["BLOBS__serviceUri"])
        # An operator's replay or release writes contents as well, and has no managed identity.
        shared = deployment.outputs["settings"]
        for each in ("RELAY_LARGE", "RELAY_BLOB_CONTAINER", "BLOBS__serviceUri"):
            assert shared[each] == settings[each]
        assert "BLOBS__credential" not in shared


@check
def the_contents_of_large_events_have_the_least_rights(project: Project) -> None:
    for deployment, _ in both(project):
        [container] = [each for each in deployment.of(BLOB_CONTAINERS) if each.name in contents(deployment)]
        assert container.at("properties.publicAccess") == "None"
        relays = {
            principal
            for each in deployment.of("Microsoft.Authorization/roleAssignments")
            if (principal := each.at("properties.principalId")) not in ("operator", "consumer")
        }
        [relay] = relays
        for principal, role in ((relay, "Contributor"), ("operator", "Contributor"), ("consumer", "Reader")):
            rights = {right for right in azure_rights(deployment, principal) if right[1] == container.id}
            assert rights == {(f"Storage Blob Data {role}", container.id)}, principal
    assert relay_identity(project.deploy(**ON))[1] == relay_identity(project.trial)[1]


@check
def the_account_of_large_events_has_no_keys_and_is_not_the_hosts(project: Project) -> None:
    for deployment, _ in both(project):
        own = [each for each in deployment.of(STORAGE) if each.name.startswith("stlarge")]
        [account] = own
        assert len(account.name) <= 24
        check_properties(own, OF_STORAGE)
        [logged] = [each for each in deployment.of(DIAGNOSTICS) if str(each.scope).startswith(account.id)]
        assert [each["category"] for each in logged.at("properties.logs")] == ["StorageDelete"]
    locked = {lock.scope for lock in project.deploy(**ON, lockContainers=True).of(LOCKS)}
    account_id = next(each.id for each in project.deploy(**ON).of(STORAGE) if each.name.startswith("stlarge"))
    assert account_id in locked
    assert account_id not in {lock.scope for lock in project.deploy(**ON, lockContainers=False).of(LOCKS)}


@check
def a_content_outlives_its_message(project: Project) -> None:
    for deployment, _ in both(project):
        waits = [
            parse_duration(each.at("properties.defaultMessageTimeToLive")).days
            for each in (*deployment.of(TOPICS), *deployment.of(SUBSCRIPTIONS))
        ]
        assert kept_in_days(deployment) == 60 > max(waits) + 30 + 10, "message, dead letter, and the outbox's ttl"
    longest = {**ON["subscriptions"][0], "messageTimeToLive": "P40D"}
    for given in (
        {"largeEventsKeptInDays": 44},
        {"deadLettersKeptInDays": 46},
        {"messageTimeToLive": "P30D"},
        {"subscriptions": [longest]},
    ):
        for deploy in (project.deploy, project.deploy_sql):
            with pytest.raises(DeploymentFailure, match=r"largeEventsKeptInDays is \d+: set more days than"):
                deploy(**ON | given)
    assert kept_in_days(project.deploy(**ON, largeEventsKeptInDays=45)) == 45
    # It concerns nobody who has no such account.
    assert project.deploy(messageTimeToLive="P90D").of(CONTAINERS)


@check
def the_account_of_large_events_is_private_with_the_rest(project: Project) -> None:
    for deployment, _ in both(project, **PRIVATE):
        [account] = [each for each in deployment.of(STORAGE) if each.name.startswith("stlarge")]
        targets = {
            connection["properties"]["privateLinkServiceId"]: connection["properties"]["groupIds"]
            for endpoint in deployment.of("Microsoft.Network/privateEndpoints")
            for connection in endpoint.at("properties.privateLinkServiceConnections")
        }
        assert account.at("properties.publicNetworkAccess") == "Disabled"
        assert account.at("properties.networkAcls.defaultAction") == "Deny"
        assert targets[account.id] == ["blob"]
