"""What the outbox must be, and who may do what in it."""

from __future__ import annotations

import re

from tests.infra import tree
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
    container,
    relay_identity,
)

ACTIONS = "Microsoft.DocumentDB/databaseAccounts"


@check
def the_account_takes_no_keys_and_no_old_tls(project: Project) -> None:
    for deployment in project.both:
        account = deployment.one(COSMOS)
        assert account.at("kind") == "GlobalDocumentDB"
        assert account.at("properties.disableLocalAuth") is True
        assert account.at("properties.disableKeyBasedMetadataWriteAccess") is True
        assert account.at("properties.minimalTlsVersion") == "Tls12"


@check
def the_account_is_backed_up_continuously(project: Project) -> None:
    tiers = []
    for deployment in project.both:
        assert deployment.one(COSMOS).at("properties.backupPolicy.type") == "Continuous"
        tiers.append(deployment.one(COSMOS).at("properties.backupPolicy.continuousModeProperties.tier"))

    assert tiers == ["Continuous7Days", "Continuous30Days"]


@check
def one_region_writes_and_sessions_are_consistent(project: Project) -> None:
    for deployment in project.both:
        account = deployment.one(COSMOS)
        assert account.at("properties.enableMultipleWriteLocations") is False
        assert account.at("properties.consistencyPolicy.defaultConsistencyLevel") == "Session"


@check
def a_second_region_takes_over_by_itself(project: Project) -> None:
    alone = project.trial.one(COSMOS)
    account = project.deploy(cosmosCapacityMode="Autoscale", cosmosSecondaryLocation="northeurope").one(COSMOS)

    assert (len(alone.at("properties.locations")), alone.at("properties.enableAutomaticFailover")) == (1, False)
    assert account.at("properties.locations") == [
        {"locationName": "westeurope", "failoverPriority": 0, "isZoneRedundant": False},
        {"locationName": "northeurope", "failoverPriority": 1, "isZoneRedundant": False},
    ]
    assert account.at("properties.enableAutomaticFailover") is True


@check
def production_is_spread_over_zones(project: Project) -> None:
    for deployment, spread in ((project.trial, False), (project.production, True)):
        [place] = deployment.one(COSMOS).at("properties.locations")
        assert place["isZoneRedundant"] is spread
        assert deployment.one("Microsoft.Web/serverfarms").at("properties.zoneRedundant") is spread
        assert deployment.one(STORAGE).at("sku.name") == ("Standard_ZRS" if spread else "Standard_LRS")


@check
def business_documents_stay_and_each_event_has_its_own_time_to_live(project: Project) -> None:
    for deployment in project.both:
        data = container(deployment, "data")
        assert data.at("properties.resource.defaultTtl") == -1
        assert data.at("properties.resource.partitionKey.paths") == ["/partitionKey"]
        assert "indexingPolicy" not in data.at("properties.resource"), "services query their documents"


@check
def leases_are_kept_by_id_and_the_lock_beside_them_expires(project: Project) -> None:
    for deployment in project.both:
        leases = container(deployment, "leases")
        # Off, the processor's initialization lock (ttl 30) outlives a killed host; above 0, leases expire.
        assert leases.at("properties.resource.defaultTtl") == -1
        assert leases.at("properties.resource.partitionKey.paths") == ["/id"]


@check
def every_container_takes_partition_keys_of_2048_bytes(project: Project) -> None:
    for deployment in project.both:
        keys = [each.at("properties.resource.partitionKey") for each in deployment.of(CONTAINERS)]
        assert [(key["kind"], key["version"]) for key in keys] == [("Hash", 2)] * 3

    older = project.deploy(cosmosPartitionKeyVersion=1).of(CONTAINERS)
    assert {each.at("properties.resource.partitionKey.version") for each in older} == {1}


def indexed(deployment: Deployment, name: str) -> set[str]:
    """The properties of a container that its policy indexes, beside `id` and `_ts`, which always are."""
    policy = container(deployment, name).at("properties.resource.indexingPolicy")
    assert policy is not None, f"{name} is indexed as a whole"
    assert (policy["automatic"], policy["indexingMode"]) == (True, "consistent")
    assert policy["excludedPaths"] == [{"path": "/*"}]
    paths = [re.fullmatch(r"/(\w+)/\?", each["path"]) for each in policy["includedPaths"]]
    return {path[1] for path in paths if path}


@check
def what_is_asked_of_quarantine_and_leases_is_indexed_and_nothing_else(project: Project) -> None:
    asked = queried_properties()
    assert asked >= {"id", "type", "reason", "partitionKey", "quarantinedAt"}
    for deployment in project.both:
        assert indexed(deployment, "leases") == set()
        assert indexed(deployment, "quarantine") == asked - {"id", "_ts"}


def queried_properties() -> set[str]:
    """What the operators' commands filter and order by, but for those on the outbox (`committed.py`)."""
    compared = re.compile(r"\bc\.(\w+) ?(?:=|<|>|IN\b)|(?:ORDER BY|[A-Z_]+\() ?c\.(\w+)")
    found = set()
    for file in sorted((ROOT / "relay").rglob("*.py")):
        if file.name != "committed.py":
            matches = compared.findall(file.read_text(encoding="utf-8"))
            found |= {name for match in matches for name in match if name}
    return found


@check
def leases_and_quarantine_cannot_be_deleted_where_they_are_locked(project: Project) -> None:
    assert project.trial.of(LOCKS) == [], "a trial has to be easy to take down"
    for deployment in (project.bare, project.production):
        locks = deployment.of(LOCKS)
        assert {lock.scope for lock in locks} == {
            container(deployment, name).id for name in ("leases", "quarantine")
        }
        assert {lock.at("properties.level") for lock in locks} == {"CanNotDelete"}


@check
def what_is_quarantined_stays(project: Project) -> None:
    for deployment in project.both:
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
    """What a principal may do: the actions (or the name of a built-in role), and where."""
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
READER = frozenset({"Cosmos DB Built-in Data Reader"})
CONTRIBUTOR = frozenset({"Cosmos DB Built-in Data Contributor"})


@check
def the_relay_reads_data_keeps_leases_and_quarantine_and_no_more(project: Project) -> None:
    for deployment in project.both:
        _, principal = relay_identity(deployment)

        assert rights(deployment, principal) == {
            (METADATA, "/dbs/outbox"),
            (READER, "/dbs/outbox/colls/data"),
            (CONTRIBUTOR, "/dbs/outbox/colls/leases"),
            (QUARANTINE, "/dbs/outbox/colls/quarantine"),
        }


@check
def writers_write_data_and_operators_the_whole_outbox(project: Project) -> None:
    deployment = project.deploy(writerPrincipalIds=["writer"], operatorPrincipalIds=["operator"])

    assert rights(deployment, "writer") == {
        (METADATA, "/dbs/outbox"),
        (CONTRIBUTOR, "/dbs/outbox/colls/data"),
    }
    assert rights(deployment, "operator") == {(CONTRIBUTOR, "/dbs/outbox")}


@check
def names_of_role_assignments_are_distinct(project: Project) -> None:
    deployment = project.deploy(writerPrincipalIds=["a", "b"], operatorPrincipalIds=["a", "c"])
    names = [resource.id for resource in deployment.resources]

    assert len(set(names)) == len(names)


@check
def role_assignments_and_subscriptions_are_made_one_after_another(project: Project) -> None:
    places = (("modules/cosmos-access.bicep", "rights"), ("main.bicep", "topicSubscriptions"))
    for file, name in places:
        declaration = project.declarations(file)[name]
        assert declaration.decorators.get("batchSize") == tree.Constant(1), f"{file}: {name}"
