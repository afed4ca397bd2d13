"""The outbox in Cosmos DB, and the roles in it."""

from __future__ import annotations

import re

from relay.backends.cosmos.quarantine import clause
from relay.quarantine.items import Filter
from tests.infra.deployment import Deployment
from tests.infra.project import (
    CONTAINERS,
    COSMOS,
    LOCKS,
    ROLES,
    ROOT,
    STORAGE,
    Project,
    check,
    check_each,
    check_properties,
    container,
    relay_identity,
)
from tests.support.pages import PRODUCT

ACTIONS = "Microsoft.DocumentDB/databaseAccounts"


OF_ACCOUNTS = {
    "disableLocalAuth": True,
    "disableKeyBasedMetadataWriteAccess": True,
    "minimalTlsVersion": "Tls12",
    "enableMultipleWriteLocations": False,
    "consistencyPolicy.defaultConsistencyLevel": "Session",
}


@check_each
def the_account_has_no_keys_no_old_tls_and_one_region_that_writes(deployment: Deployment) -> None:
    assert deployment.one(COSMOS).at("kind") == "GlobalDocumentDB"
    check_properties(deployment.of(COSMOS), OF_ACCOUNTS)


@check
def the_account_is_backed_up_continuously(project: Project) -> None:
    tiers = []
    for deployment in project.both:
        assert deployment.one(COSMOS).at("properties.backupPolicy.type") == "Continuous"
        tiers.append(deployment.one(COSMOS).at("properties.backupPolicy.continuousModeProperties.tier"))

    assert tiers == ["Continuous7Days", "Continuous30Days"]


@check
def a_second_region_takes_over_automatically(project: Project) -> None:
    alone = project.trial.one(COSMOS)
    account = project.deploy(cosmosCapacityMode="Autoscale", cosmosSecondaryLocation="northeurope").one(COSMOS)

    assert (len(alone.at("properties.locations")), alone.at("properties.enableAutomaticFailover")) == (1, False)
    assert account.at("properties.locations") == [
        {"locationName": "westeurope", "failoverPriority": 0, "isZoneRedundant": False},
        {"locationName": "northeurope", "failoverPriority": 1, "isZoneRedundant": False},
    ]
    assert account.at("properties.enableAutomaticFailover") is True


@check
def production_is_zone_redundant(project: Project) -> None:
    for deployment, spread in ((project.trial, False), (project.production, True)):
        [place] = deployment.one(COSMOS).at("properties.locations")
        assert place["isZoneRedundant"] is spread
        assert deployment.one("Microsoft.Web/serverfarms").at("properties.zoneRedundant") is spread
        assert deployment.one(STORAGE).at("sku.name") == ("Standard_ZRS" if spread else "Standard_LRS")


@check_each
def business_documents_do_not_expire_and_each_event_has_its_own_time_to_live(deployment: Deployment) -> None:
    data = container(deployment, "data")
    assert data.at("properties.resource.defaultTtl") == -1
    assert data.at("properties.resource.partitionKey.paths") == ["/partitionKey"]
    assert "indexingPolicy" not in data.at("properties.resource"), "services query their documents"


@check_each
def leases_do_not_expire_but_the_initialization_lock_does(deployment: Deployment) -> None:
    leases = container(deployment, "leases")
    # Off, the processor's initialization lock (ttl 30) outlives a killed host; above 0, leases expire.
    assert leases.at("properties.resource.defaultTtl") == -1
    assert leases.at("properties.resource.partitionKey.paths") == ["/id"]


@check
def every_container_allows_partition_keys_of_2048_bytes(project: Project) -> None:
    for deployment in project.both:
        keys = [each.at("properties.resource.partitionKey") for each in deployment.of(CONTAINERS)]
        assert [(key["kind"], key["version"]) for key in keys] == [("Hash", 2)] * 3

    older = project.deploy(cosmosPartitionKeyVersion=1).of(CONTAINERS)
    assert {each.at("properties.resource.partitionKey.version") for each in older} == {1}


def indexed(deployment: Deployment, name: str) -> set[str]:
    """The properties of a container that its policy indexes, without `id` and `_ts`, which are always indexed."""
    policy = container(deployment, name).at("properties.resource.indexingPolicy")
    assert policy is not None, f"{name} indexes every property"
    assert (policy["automatic"], policy["indexingMode"]) == (True, "consistent")
    assert policy["excludedPaths"] == [{"path": "/*"}]
    paths = [re.fullmatch(r"/(\w+)/\?", each["path"]) for each in policy["includedPaths"]]
    return {path[1] for path in paths if path}


@check
def quarantine_and_leases_index_only_queried_properties(project: Project) -> None:
    queried = queried_properties()
    assert queried >= {"id", "type", "reason", "partitionKey", "quarantinedAt"}
    for deployment in project.both:
        assert indexed(deployment, "leases") == set()
        assert indexed(deployment, "quarantine") == queried - {"id", "_ts"}


def queried_properties() -> set[str]:
    """Properties that queries of leases and quarantine filter and order by; some modules query the outbox."""
    compared = re.compile(r"\bc\.(\w+) ?(?:=|<|>|IN\b)|(?:ORDER BY|[A-Z_]+\() ?c\.(\w+)")
    every, _ = clause(Filter(reason="r", partition_key="k", since="s"))
    found = {name for match in compared.findall(every) for name in match if name}
    for file in sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        # In the SQL of other databases, `c` may be any table.
        if file.name not in ("reader.py", "ranges.py") and "FROM c" in text:
            matches = compared.findall(text)
            found |= {name for match in matches for name in match if name}
    return found


@check
def leases_and_quarantine_are_locked_except_in_a_trial(project: Project) -> None:
    assert project.trial.of(LOCKS) == [], "a trial must be easy to delete"
    for deployment in (project.bare, project.production):
        locks = deployment.of(LOCKS)
        assert {lock.scope for lock in locks} == {
            container(deployment, name).id for name in ("leases", "quarantine")
        }
        assert {lock.at("properties.level") for lock in locks} == {"CanNotDelete"}


@check_each
def quarantined_events_do_not_expire(deployment: Deployment) -> None:
    quarantine = container(deployment, "quarantine")
    assert "defaultTtl" not in quarantine.at("properties.resource")
    assert quarantine.at("properties.resource.partitionKey.paths") == ["/partitionKey"]


@check
def throughput_is_serverless_or_autoscale(project: Project) -> None:
    assert project.trial.one(COSMOS).at("properties.capabilities") == [{"name": "EnableServerless"}]
    assert container(project.trial, "data").at("properties.options") == {}
    assert project.production.one(COSMOS).at("properties.capabilities") == []
    options = {
        name: container(project.production, name).at("properties.options.autoscaleSettings.maxThroughput")
        for name in ("data", "leases", "quarantine")
    }
    assert options == {"data": 10_000, "leases": 1000, "quarantine": 1000}


def rights(deployment: Deployment, principal: str) -> set[tuple[frozenset[str], str]]:
    """The roles of a principal: the actions (or the name of a built-in role), and the scope."""
    defined = {
        resource.id: frozenset(resource.at("properties.permissions")[0]["dataActions"])
        for resource in deployment.of(f"{COSMOS}/sqlRoleDefinitions")
    }
    built_in = {identifier: name for name, identifier in ROLES.items()}
    assert {each.at("properties.type") for each in deployment.of(f"{COSMOS}/sqlRoleDefinitions")} == {"CustomRole"}
    account = deployment.one(COSMOS).id
    found = set()
    for resource in deployment.of(f"{COSMOS}/sqlRoleAssignments"):
        if resource.at("properties.principalId") == principal:
            role, scope = resource.at("properties.roleDefinitionId"), resource.at("properties.scope")
            assert role.startswith(f"{account}/sqlRoleDefinitions/")
            assert scope.startswith(account)
            what = defined.get(role) or frozenset({built_in[role.rpartition("/")[2]]})
            found.add((what, scope.removeprefix(account)))
    return found


METADATA = frozenset({f"{ACTIONS}/readMetadata"})
QUARANTINE = frozenset(
    {
        f"{ACTIONS}/readMetadata",
        f"{ACTIONS}/sqlDatabases/containers/executeQuery",
        f"{ACTIONS}/sqlDatabases/containers/items/*",
    }
)
WRITER = frozenset(
    {
        f"{ACTIONS}/readMetadata",
        f"{ACTIONS}/sqlDatabases/containers/executeQuery",
        *(f"{ACTIONS}/sqlDatabases/containers/items/{each}" for each in ("create", "read", "replace", "upsert")),
    }
)
READER = frozenset({"Cosmos DB Built-in Data Reader"})
CONTRIBUTOR = frozenset({"Cosmos DB Built-in Data Contributor"})


@check_each
def the_relay_has_the_least_roles_in_the_outbox(deployment: Deployment) -> None:
    _, principal = relay_identity(deployment)

    assert rights(deployment, principal) == {
        (METADATA, "/dbs/outbox"),
        (READER, "/dbs/outbox/colls/data"),
        (CONTRIBUTOR, "/dbs/outbox/colls/leases"),
        (QUARANTINE, "/dbs/outbox/colls/quarantine"),
    }


@check
def writers_do_not_delete_and_operators_write_the_whole_outbox(project: Project) -> None:
    deployment = project.deploy(writerPrincipalIds=["writer"], operatorPrincipalIds=["operator"])

    assert rights(deployment, "writer") == {
        (METADATA, "/dbs/outbox"),
        (WRITER, "/dbs/outbox/colls/data"),
    }
    assert (CONTRIBUTOR, "/dbs/outbox/colls/data") in rights(
        project.deploy(writerPrincipalIds=["writer"], writersMayDelete=True), "writer"
    )
    assert rights(deployment, "operator") == {(CONTRIBUTOR, "/dbs/outbox")}


@check
def names_of_role_assignments_are_distinct(project: Project) -> None:
    deployment = project.deploy(writerPrincipalIds=["a", "b"], operatorPrincipalIds=["a", "c"])
    names = [resource.id for resource in deployment.resources]

    assert len(set(names)) == len(names)


@check
def role_assignments_and_subscriptions_are_deployed_serially(project: Project) -> None:
    places = (("modules/cosmos-access.bicep", "rights"), ("modules/messaging.bicep", "topicSubscriptions"))
    for file, name in places:
        assert project.body(file, name).startswith("@batchSize(1)\n"), f"{file}: {name}"
