"""The project that the checks examine: its files, and what `infra/` would deploy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.infra.bicep import tree
from tests.infra.bicep.deployment import Deployment, Resource
from tests.infra.bicep.parameters import read_parameters
from tests.infra.bicep.parser import parse
from tests.infra.bicep.template import deploy

ROOT = Path(__file__).resolve().parents[2]

ROLES = {
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
    "Storage Blob Data Owner": "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    "Monitoring Metrics Publisher": "3913510d-42f4-4e42-8a64-420c390055eb",
    "Azure Service Bus Data Sender": "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
    "Azure Service Bus Data Receiver": "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
    "Azure Service Bus Data Owner": "090c5cfd-751d-490a-894a-3ce6f1109419",
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "Cosmos DB Built-in Data Reader": "00000000-0000-0000-0000-000000000001",
    "Cosmos DB Built-in Data Contributor": "00000000-0000-0000-0000-000000000002",
}
"""https://learn.microsoft.com/azure/role-based-access-control/built-in-roles, and those of Cosmos DB."""

COSMOS = "Microsoft.DocumentDB/databaseAccounts"
CONTAINERS = f"{COSMOS}/sqlDatabases/containers"
SERVICE_BUS = "Microsoft.ServiceBus/namespaces"
TOPICS = f"{SERVICE_BUS}/topics"
SUBSCRIPTIONS = f"{TOPICS}/subscriptions"
RULES = f"{SUBSCRIPTIONS}/rules"
STORAGE = "Microsoft.Storage/storageAccounts"
SITES = "Microsoft.Web/sites"
POSTGRES = "Microsoft.DBforPostgreSQL/flexibleServers"
AZURE_SQL = "Microsoft.Sql/servers"
WORKERS = "Microsoft.App/containerApps"
WORKER_ENVIRONMENTS = "Microsoft.App/managedEnvironments"
IDENTITIES = "Microsoft.ManagedIdentity/userAssignedIdentities"
ROLE_ASSIGNMENTS = "Microsoft.Authorization/roleAssignments"
LOCKS = "Microsoft.Authorization/locks"
DIAGNOSTICS = "Microsoft.Insights/diagnosticSettings"
WORKSPACE = "Microsoft.OperationalInsights/workspaces"
COMPONENT = "Microsoft.Insights/components"
ACTION_GROUP = "Microsoft.Insights/actionGroups"


@dataclass(frozen=True)
class Project:
    """A folder with the project's files, or with a changed copy of them."""

    root: Path

    @property
    def infra(self) -> Path:
        return self.root / "infra"

    @cached_property
    def files(self) -> dict[str, str]:
        """The text of each .bicep file, by its path within `infra/`."""
        return {
            str(file.relative_to(self.infra)): file.read_text(encoding="utf-8")
            for file in sorted(self.infra.rglob("*.bicep"))
        }

    def declarations(self, file: str) -> dict[str, tree.Declaration]:
        """The declarations of a file except its outputs, by name."""
        return {each.name: each for each in parse(self.files[file], file) if each.kind != "output"}

    def parameters(self, name: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The parameters that a parameter file sets."""
        return read_parameters(self.infra / name, environment)

    def deploy(self, **parameters: Any) -> Deployment:
        """A deployment with the trial's parameters and these."""
        return deploy(self.infra / "main.bicep", self.parameters("main.trial.bicepparam") | parameters)

    @cached_property
    def bare(self) -> Deployment:
        """A deployment with the required parameters only."""
        return deploy(self.infra / "main.bicep", {"environmentName": "bare"})

    @cached_property
    def trial(self) -> Deployment:
        return self.deploy()

    @cached_property
    def production(self) -> Deployment:
        return deploy(self.infra / "main.bicep", self.parameters("main.production.bicepparam"))

    def deploy_sql(self, name: str = "sql.trial.bicepparam", **parameters: Any) -> Deployment:
        """A deployment of sql.bicep with the parameters of a file and these."""
        return deploy(self.infra / "sql.bicep", self.parameters(name) | parameters)

    @cached_property
    def sql_deployments(self) -> dict[str, Deployment]:
        """A trial and a production deployment of each engine."""
        return {
            f"{engine}, {name}": self.deploy_sql(f"sql.{name}.bicepparam", engine=engine)
            for engine in ("PostgreSQL", "AzureSQL")
            for name in ("trial", "production")
        }

    @property
    def both(self) -> Iterator[Deployment]:
        yield self.trial
        yield self.production

    def yaml(self, path: str) -> Any:
        """A YAML file."""
        return yaml.safe_load((self.root / path).read_text(encoding="utf-8"))

    def json(self, path: str) -> Any:
        """A JSON file."""
        return json.loads((self.root / path).read_text(encoding="utf-8"))


Check = Callable[[Project], None]
_CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Register a check, which raises AssertionError if the project is not as its name says."""
    _CHECKS[function.__name__] = function
    return function


def check_each_sql(function: Callable[[Deployment], None]) -> None:
    """Register a check that holds for the trial's deployment and production's of each engine of SQL."""

    def run(project: Project) -> None:
        for deployment in project.sql_deployments.values():
            function(deployment)

    _CHECKS[function.__name__] = run


def check_each(function: Callable[[Deployment], None]) -> None:
    """Register a check that holds for both the trial's deployment and production's."""

    def run(project: Project) -> None:
        for deployment in project.both:
            function(deployment)

    _CHECKS[function.__name__] = run


def checks() -> dict[str, Check]:
    """Every check, by name."""
    return dict(_CHECKS)


def relay_identity(deployment: Deployment) -> tuple[str, str]:
    """The client id and the principal id of the function app's identity."""
    settings = app_settings(deployment)
    rights = deployment.of(f"{COSMOS}/sqlRoleAssignments")
    return settings["COSMOS__clientId"], str(rights[0].at("properties.principalId"))


def app_settings(deployment: Deployment) -> dict[str, str]:
    """The settings of the function app."""
    return dict(deployment.one(f"{SITES}/config", "appsettings").at("properties"))


def worker_settings(deployment: Deployment) -> dict[str, str]:
    """The settings of the worker."""
    [container] = deployment.one(WORKERS).at("properties.template.containers")
    return {each["name"]: each["value"] for each in container["env"]}


def azure_rights(deployment: Deployment, principal: str) -> set[tuple[str, str]]:
    """The Azure roles of a principal: the role's name and the id of its scope."""
    names = {identifier: name for name, identifier in ROLES.items()}
    return {
        (names[resource.at("properties.roleDefinitionId").rpartition("/")[2]], str(resource.scope))
        for resource in deployment.of(ROLE_ASSIGNMENTS)
        if resource.at("properties.principalId") == principal
    }


def container(deployment: Deployment, name: str) -> Resource:
    """A container of the outbox."""
    return deployment.one(CONTAINERS, name)
