"""The project that the checks examine: its files, and what `infra/` would deploy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.infra.deployment import Deployment, Resource
from tests.infra.runtime import resolve
from tests.infra.snapshots import Recorded, Source

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


TOLD: dict[str, Any] = {
    "operatorEmails": ["operators@example.org"],
    "runbook": "https://example.org/docs/runbook.md",
}
"""Who learns of alerts, and the address where they read what to do: without, only a trial is deployed."""

RECORDED = Recorded()


class _Deployments(Mapping[str, Deployment]):
    """Deployments by name, each evaluated when it is used."""

    def __init__(self, deploy: Mapping[str, Callable[[], Deployment]]) -> None:
        self._deploy = deploy

    def __getitem__(self, name: str) -> Deployment:
        return self._deploy[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._deploy)

    def __len__(self) -> int:
        return len(self._deploy)


@dataclass(frozen=True)
class Project:
    """A folder with the project's files, or with a changed copy of them.

    Attributes:
        root: The folder.
        source: Answers what `infra/` would deploy. A changed copy needs the compiler.
    """

    root: Path
    source: Source = RECORDED

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

    def declared(self, file: str) -> dict[str, str]:
        """The parameters of a template by name, each with the lines before it: its decorators."""
        found, before = {}, ""
        for line in self.files[file].splitlines(keepends=True):
            words = line.split()
            if line.startswith("param "):
                found[words[1]] = before
            before = "" if not words or line.startswith("param ") else before + line
        return found

    def body(self, file: str, symbol: str) -> str:
        """The declaration of a module or resource, with the line before it, up to its closing brace."""
        lines = rf"^(.*\n(?:module|resource) {symbol} .*\n(?:(?: .*)?\n)*\}}\]?\n)"
        [text] = re.findall(lines, self.files[file], re.MULTILINE)
        return str(text)

    def parameters(self, name: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The parameters that a parameter file sets."""
        return self.source.parameters(self.infra, name, environment or {})

    def parameters_of(self, text: str) -> dict[str, Any]:
        """The parameters in a text."""
        return self.source.parameters_of(text)

    def deploy_template(self, template: str, **parameters: Any) -> Deployment:
        """A deployment of a template with these parameters only."""
        return self.source.deployment(self.infra, template, "", parameters)

    def deploy_file(self, file: str, **parameters: Any) -> Deployment:
        """A deployment with the parameters of a file and these."""
        return self.source.deployment(self.infra, f"{file.partition('.')[0]}.bicep", file, parameters)

    def deploy(self, **parameters: Any) -> Deployment:
        """A deployment with the trial's parameters and these."""
        return self.deploy_file("main.trial.bicepparam", **parameters)

    @property
    def bare(self) -> Deployment:
        """A deployment with the required parameters only."""
        return self.deploy_template("main.bicep", environmentName="bare", **TOLD)

    @property
    def trial(self) -> Deployment:
        return self.deploy()

    @property
    def production(self) -> Deployment:
        return self.deploy_file("main.production.bicepparam")

    def deploy_sql(self, name: str = "sql.trial.bicepparam", **parameters: Any) -> Deployment:
        """A deployment of sql.bicep with the parameters of a file and these."""
        return self.deploy_file(name, **parameters)

    @property
    def sql_deployments(self) -> Mapping[str, Deployment]:
        """A trial and a production deployment of each engine."""
        return _Deployments(
            {
                f"{engine}, {name}": partial(self.deploy_sql, f"sql.{name}.bicepparam", engine=engine)
                for engine in ("PostgreSQL", "AzureSQL")
                for name in ("trial", "production")
            }
        )

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
    client = app_settings(deployment)["COSMOS__clientId"]
    [own] = [
        each.id for each in deployment.of(IDENTITIES) if resolve(f"[reference('{each.id}').clientId]") == client
    ]
    return client, resolve(f"[reference('{own}').principalId]")


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


def check_properties(resources: Iterable[Resource], expected: Mapping[str, Any]) -> None:
    """Check that each resource has these properties, by their paths."""
    for resource in resources:
        found = {path: resource.at(f"properties.{path}") for path in expected}
        assert found == expected, resource.name


def container(deployment: Deployment, name: str) -> Resource:
    """A container of the outbox."""
    return deployment.one(CONTAINERS, name)
