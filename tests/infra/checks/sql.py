"""The relay with an outbox in SQL: database, identity, worker, settings and network of sql.bicep."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from relay.backends.sql.database import needs_token
from relay.config.clients import ConnectionString
from relay.config.settings import Settings
from relay.core.times import parse_duration
from tests.infra.checks.settings import ON_REQUEST, RELAY, assert_relay, known_settings
from tests.infra.deployment import BicepError, Deployment, DeploymentFailure
from tests.infra.project import (
    AZURE_SQL,
    COMPONENT,
    DIAGNOSTICS,
    IDENTITIES,
    POSTGRES,
    SERVICE_BUS,
    TOPICS,
    WORKER_ENVIRONMENTS,
    WORKERS,
    WORKSPACE,
    Project,
    azure_rights,
    check,
    check_each_sql,
    worker_settings,
)

EXPORTER = {"APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING"}
WITH_OTHER_SECRETS = re.compile(r"(?i)password=|pwd=|AccountKey=|SharedAccessKey|://[^/@\s\"]*:[^/@\s\"]*@")


def principal(deployment: Deployment) -> str:
    """The principal id of the worker's identity, by its role in the topic."""
    [assigned] = [
        each
        for each in deployment.of("Microsoft.Authorization/roleAssignments")
        if each.scope == deployment.one(TOPICS).id
    ]
    return str(assigned.at("properties.principalId"))


@check_each_sql
def nobody_logs_in_to_the_database_with_a_password(deployment: Deployment) -> None:
    for server in deployment.of(POSTGRES):
        assert server.at("properties.authConfig.activeDirectoryAuth") == "Enabled"
        assert server.at("properties.authConfig.passwordAuth") == "Disabled"
        assert deployment.one(f"{POSTGRES}/administrators").at("properties.principalName")
    for server in deployment.of(AZURE_SQL):
        assert server.at("properties.administrators.azureADOnlyAuthentication") is True
        assert server.at("properties.administrators.administratorType") == "ActiveDirectory"
    [server] = [*deployment.of(POSTGRES), *deployment.of(AZURE_SQL)]
    assert "administratorLogin" not in server.at("properties")
    assert "administratorLoginPassword" not in server.at("properties")


@check_each_sql
def the_database_accepts_encrypted_connections_only(deployment: Deployment) -> None:
    sql = worker_settings(deployment)["SQL"]
    if deployment.of(POSTGRES):
        only_tls = deployment.one(f"{POSTGRES}/configurations", "require_secure_transport")
        assert only_tls.at("properties.value") == "on"
        # verify-full compares the certificate with the host's name; the other modes do not.
        assert urlsplit(sql).query == "sslmode=verify-full&sslrootcert=system"
    else:
        assert deployment.one(AZURE_SQL).at("properties.minimalTlsVersion") == "1.2"
        assert ConnectionString(sql).get("Encrypt") == "yes"
        assert "trustservercertificate" not in sql.lower()


@check_each_sql
def the_worker_understands_its_settings(deployment: Deployment) -> None:
    environment = worker_settings(deployment)
    settings = Settings.from_environment(environment)
    known = known_settings(environment)

    assert set(environment) - EXPORTER == {
        name for name in known - {"SERVICEBUS"} - ON_REQUEST if name != "COSMOS" and not name.startswith("COSMOS_")
    }
    assert settings.cosmos is None
    assert settings.sql is not None
    client = environment["SQL__clientId"]
    for identity in (settings.sql.identity, settings.servicebus.connection.identity):
        assert identity is not None
        assert (identity.managed, identity.client_id) == (True, client)
    assert re.fullmatch(r"sbns-relay-\w+\.servicebus\.windows\.net", settings.servicebus.connection.address or "")
    # Its own retry, and the topic's window.
    window = parse_duration(deployment.one(TOPICS).at("properties.duplicateDetectionHistoryTimeWindow"))
    assert settings.servicebus.duplicate_window_s == window.total_seconds()


@check_each_sql
def the_worker_connects_to_the_deployed_database_as_its_identity(deployment: Deployment) -> None:
    environment = worker_settings(deployment)
    identity = deployment.one(IDENTITIES).name
    if deployment.of(POSTGRES):
        url = urlsplit(environment["SQL"])
        database = deployment.one(f"{POSTGRES}/databases").name.rpartition("/")[2]
        assert url.hostname == f"{deployment.one(POSTGRES).name}.postgres.database.azure.com"
        assert (url.username, url.password, url.path) == (identity, None, f"/{database}")
        assert needs_token(environment["SQL"])
    else:
        parts = ConnectionString(environment["SQL"])
        database = deployment.one(f"{AZURE_SQL}/databases").name.rpartition("/")[2]
        assert parts.get("Server") == f"tcp:{deployment.one(AZURE_SQL).name}.database.windows.net,1433"
        assert parts.get("Database") == database
        assert parts.get("Authentication") == "ActiveDirectoryMSI"
        assert parts.get("UID") == environment["SQL__clientId"]
        assert not needs_token(environment["SQL"])


@check_each_sql
def telemetry_of_the_worker_is_sent_as_its_identity(deployment: Deployment) -> None:
    environment = worker_settings(deployment)
    client = environment["SQL__clientId"]
    assert environment["APPLICATIONINSIGHTS_AUTHENTICATION_STRING"] == f"ClientId={client};Authorization=AAD"
    assert environment["APPLICATIONINSIGHTS_CONNECTION_STRING"].startswith("InstrumentationKey=")
    assert deployment.one(COMPONENT).at("properties.DisableLocalAuth") is True


@check_each_sql
def the_worker_may_send_to_the_topic_pull_its_image_and_report(deployment: Deployment) -> None:
    rights = azure_rights(deployment, principal(deployment))
    assert {name for name, _ in rights} == {
        "AcrPull",
        "Azure Service Bus Data Sender",
        "Monitoring Metrics Publisher",
    }
    scopes = dict(rights)
    assert scopes["Azure Service Bus Data Sender"] == deployment.one(TOPICS).id
    assert scopes["AcrPull"].endswith("/Microsoft.ContainerRegistry/registries/myregistry")
    app = deployment.one(WORKERS)
    assert app.at("identity.userAssignedIdentities") == {deployment.one(IDENTITIES).id: {}}
    assert app.at("properties.configuration.registries") == [
        {"server": "myregistry.azurecr.io", "identity": deployment.one(IDENTITIES).id}
    ]


@check
def a_public_image_needs_no_registry(project: Project) -> None:
    deployment = project.deploy_sql(registryName="", image="ghcr.io/example/outbox-relay:1")

    assert deployment.one(WORKERS).at("properties.configuration.registries") == []
    assert "AcrPull" not in {name for name, _ in azure_rights(deployment, principal(deployment))}


@check
def an_image_is_named_with_its_digest(project: Project) -> None:
    for kind in ("trial", "production"):
        image = project.parameters(f"sql.{kind}.bicepparam")["image"]
        assert re.fullmatch(r"[\w./-]+@sha256:[0-9a-f]{64}", image), kind
    for file, text in project.files.items():
        assert not re.search(r"\.azurecr\.io/[\w./-]+:", text), file


@check_each_sql
def no_secret_is_deployed_or_returned(deployment: Deployment) -> None:
    bodies = [dict(resource.body) for resource in deployment.resources]
    for text in (json.dumps(bodies), json.dumps(deployment.outputs)):
        assert not WITH_OTHER_SECRETS.search(text)
    app = deployment.one(WORKERS)
    assert "secrets" not in app.at("properties.configuration")
    assert "InstrumentationKey" not in json.dumps(deployment.outputs)


@check
def operators_get_settings_with_a_name_of_their_own(project: Project) -> None:
    for name, deployment in project.sql_deployments.items():
        output, environment = deployment.outputs["settings"], worker_settings(deployment)
        read = Settings.from_environment(output)
        assert read.sql is not None
        assert set(output) <= set(environment)
        assert {each: environment[each] for each in output if each != "SQL"} == {
            each: value for each, value in output.items() if each != "SQL"
        }
        if name.startswith("PostgreSQL"):
            own, workers = urlsplit(output["SQL"]), urlsplit(environment["SQL"])
            assert (own.hostname, own.path, own.query) == (workers.hostname, workers.path, workers.query)
            assert own.username != workers.username
        else:
            assert output["SQL"].endswith(";Authentication=ActiveDirectoryDefault")
    # The sign within a user's name would end it.
    sql = project.deploy_sql(administratorName="me@example.org").outputs["settings"]["SQL"]
    assert sql.startswith("postgresql://me%40example.org@psql-relay-")


@check
def replicas_stay_between_one_and_the_number_of_shards(project: Project) -> None:
    scale = "properties.template.scale"
    trial = project.sql_deployments["PostgreSQL, trial"].one(WORKERS).at(scale)
    production = project.sql_deployments["PostgreSQL, production"].one(WORKERS).at(scale)

    # Two, so that the second takes over. Without a rule the default one applies, which scales by HTTP requests.
    assert trial == {"minReplicas": 2, "maxReplicas": 2, "rules": []}
    assert (production["minReplicas"], production["maxReplicas"]) == (2, 4)
    assert [each["custom"] for each in production["rules"]] == [
        {"type": "cpu", "metadata": {"type": "Utilization", "value": "70"}}
    ]
    for minimum, maximum, shards in ((1, 5, 4), (3, 2, 4)):
        with pytest.raises(DeploymentFailure, match="maxReplicas must be at least minReplicas"):
            project.deploy_sql(minReplicas=minimum, maxReplicas=maximum, shards=shards)
    with pytest.raises(BicepError, match="minReplicas"):
        project.deploy_sql(minReplicas=0, maxReplicas=1)
    single = project.deploy_sql(minReplicas=1, maxReplicas=1).one(WORKERS)
    assert single.at(f"{scale}.minReplicas") == 1


@check_each_sql
def no_scale_rule_uses_an_identity(deployment: Deployment) -> None:
    # https://github.com/microsoft/azure-container-apps/issues/1786
    for rule in deployment.one(WORKERS).at("properties.template.scale.rules"):
        assert "identity" not in rule["custom"]
        assert rule["custom"]["type"] == "cpu"


@check
def a_replica_has_time_to_finish_its_pages(project: Project) -> None:
    for seconds in (2, 10, 300):
        app = project.deploy_sql(claimSeconds=seconds).one(WORKERS)
        grace = app.at("properties.template.terminationGracePeriodSeconds")
        assert grace is not None
        # Container Apps allows ten minutes.
        assert seconds + 10 <= grace <= 600


@check_each_sql
def the_worker_has_no_endpoint_and_one_revision_at_a_time(deployment: Deployment) -> None:
    app = deployment.one(WORKERS)
    assert "ingress" not in app.at("properties.configuration")
    assert app.at("properties.configuration.activeRevisionsMode") == "Single"
    [container] = app.at("properties.template.containers")
    assert "command" not in container
    assert "probes" not in container


@check
def every_parameter_reaches_the_worker(project: Project) -> None:
    deployment = project.deploy_sql(
        feed="shop.event",
        shards=8,
        claimSeconds=20,
        database="shop",
        image="x/y:2",
        registryName="",
        cpu="2",
        memory="4Gi",
        maxReplicas=8,
        **RELAY,
    )
    settings = Settings.from_environment(worker_settings(deployment))
    [container] = deployment.one(WORKERS).at("properties.template.containers")

    assert settings.sql is not None
    assert (settings.sql.feed, settings.sql.shards, settings.sql.claim_s) == ("shop.event", 8, 20)
    assert settings.sql.connection_string.partition("?")[0].endswith("/shop")
    assert_relay(settings)
    assert (container["image"], container["resources"]) == ("x/y:2", {"cpu": 2, "memory": "4Gi"})


@check
def a_trial_can_be_reached_from_azure_and_from_the_named_addresses(project: Project) -> None:
    for engine, server in (("PostgreSQL", POSTGRES), ("AzureSQL", AZURE_SQL)):
        open_one = project.deploy_sql(engine=engine, clientIpAddresses=["192.0.2.7"])
        rules = {
            rule.name.rpartition("/")[2]: rule.at("properties") for rule in open_one.of(f"{server}/firewallRules")
        }
        assert rules == {
            "azure": {"startIpAddress": "0.0.0.0", "endIpAddress": "0.0.0.0"},
            "client-192-0-2-7": {"startIpAddress": "192.0.2.7", "endIpAddress": "192.0.2.7"},
        }
        closed = project.deploy_sql("sql.production.bicepparam", engine=engine, clientIpAddresses=["192.0.2.7"])
        assert not closed.of(f"{server}/firewallRules")


@check
def production_is_private_and_zone_redundant(project: Project) -> None:
    groups = {"PostgreSQL": "postgresqlServer", "AzureSQL": "sqlServer"}
    zones = {
        "PostgreSQL": "privatelink.postgres.database.azure.com",
        "AzureSQL": "privatelink.database.windows.net",
    }
    for engine, server in (("PostgreSQL", POSTGRES), ("AzureSQL", AZURE_SQL)):
        deployment = project.sql_deployments[f"{engine}, production"]
        network = deployment.one("Microsoft.Network/virtualNetworks")
        endpoints = {
            tuple(each["properties"]["groupIds"]): each["properties"]["privateLinkServiceId"]
            for endpoint in deployment.of("Microsoft.Network/privateEndpoints")
            for each in endpoint.at("properties.privateLinkServiceConnections")
        }
        assert endpoints == {
            (groups[engine],): deployment.one(server).id,
            ("namespace",): deployment.one(SERVICE_BUS).id,
        }
        assert zones[engine] in {each.name for each in deployment.of("Microsoft.Network/privateDnsZones")}
        environment = deployment.one(WORKER_ENVIRONMENTS)
        assert environment.at("properties.vnetConfiguration") == {
            "infrastructureSubnetId": f"{network.id}/subnets/snet-integration",
            "internal": True,
        }
        assert environment.at("properties.zoneRedundant") is True
        assert deployment.one(SERVICE_BUS).at("properties.publicNetworkAccess") == "Disabled"
    postgres = project.sql_deployments["PostgreSQL, production"].one(POSTGRES)
    assert postgres.at("properties.highAvailability.mode") == "ZoneRedundant"
    assert postgres.at("properties.network.publicNetworkAccess") == "Disabled"
    azure_sql = project.sql_deployments["AzureSQL, production"]
    assert azure_sql.one(f"{AZURE_SQL}/databases").at("properties.zoneRedundant") is True
    assert azure_sql.one(AZURE_SQL).at("properties.publicNetworkAccess") == "Disabled"
    trial = project.sql_deployments["PostgreSQL, trial"]
    assert "vnetConfiguration" not in trial.one(WORKER_ENVIRONMENTS).at("properties")


@check
def what_azure_rejects_is_rejected_with_the_reason(project: Project) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"privateNetworking": True}, "privateNetworking needs serviceBusSku Premium"),
        ({"zoneRedundant": True, "postgresSkuTier": "GeneralPurpose"}, "zoneRedundant needs privateNetworking"),
        (
            {"privateNetworking": True, "serviceBusSku": "Premium", "zoneRedundant": True},
            "zoneRedundant needs postgresSkuTier",
        ),
    ]
    for changes, reason in refused:
        with pytest.raises(DeploymentFailure, match=reason):
            project.deploy_sql(**changes)
    invalid: dict[str, Any] = {"engine": "MySQL", "claimSeconds": 1, "shards": 0, "postgresVersion": "12"}
    for name, value in invalid.items():
        with pytest.raises(BicepError, match=name):
            project.deploy_sql(**{name: value})


@check
def the_allowed_values_are_those_of_the_settings(project: Project) -> None:
    for seconds, shards in ((2, 1), (300, 1024)):
        deployment = project.deploy_sql(claimSeconds=seconds, shards=shards)
        Settings.from_environment(worker_settings(deployment))
    invalid: dict[str, Any] = {"claimSeconds": 301, "shards": 1025}
    for name, value in invalid.items():
        with pytest.raises(BicepError, match=name):
            project.deploy_sql(**{name: value})


@check_each_sql
def every_part_of_the_sql_deployment_exports_its_logs(deployment: Deployment) -> None:
    workspace = deployment.one(WORKSPACE).id
    exported = {}
    for setting in deployment.of(DIAGNOSTICS):
        assert setting.at("properties.workspaceId") == workspace
        sources = setting.at("properties.logs") + setting.at("properties.metrics")
        assert all(source["enabled"] is True for source in sources)
        exported[setting.scope] = {source.get("category") or source["categoryGroup"] for source in sources}
    databases = [*deployment.of(POSTGRES), *deployment.of(f"{AZURE_SQL}/databases")]
    assert set(exported) == {
        deployment.one(SERVICE_BUS).id,
        deployment.one(WORKER_ENVIRONMENTS).id,
        databases[0].id,
    }
    assert exported[deployment.one(WORKER_ENVIRONMENTS).id] >= {
        "ContainerAppConsoleLogs",
        "ContainerAppSystemLogs",
    }
    # The other destination needs the workspace's key, and key authentication is off.
    destination = deployment.one(WORKER_ENVIRONMENTS).at("properties.appLogsConfiguration")
    assert destination == {"destination": "azure-monitor"}


@check_each_sql
def names_of_the_sql_deployment_follow_the_cloud_adoption_framework(deployment: Deployment) -> None:
    # https://learn.microsoft.com/azure/cloud-adoption-framework/ready/azure-best-practices/resource-abbreviations
    for kind, prefix in {
        POSTGRES: "psql-",
        AZURE_SQL: "sql-",
        WORKERS: "ca-",
        WORKER_ENVIRONMENTS: "cae-",
        IDENTITIES: "id-",
        SERVICE_BUS: "sbns-",
    }.items():
        for resource in deployment.of(kind):
            assert resource.name.startswith(prefix), resource.name
            # A container app's name has at most 32 characters.
            assert len(resource.name) <= 32
            assert resource.at("tags")["application"] == "outbox-relay"


@check
def the_readme_registers_the_providers_of_the_sql_deployment(project: Project) -> None:
    text = (project.infra / "README.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"for provider in ([^;]+);", text)
    used = {
        resource.type.partition("/")[0]
        for deployment in project.sql_deployments.values()
        for resource in deployment.resources
    }

    # Authorization is always registered; the registry is not deployed here.
    assert set(re.findall(r"Microsoft\.\w+", listed)) == used - {"Microsoft.Authorization"}
