"""The resources that a deployment creates, read from a snapshot of the Bicep compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.infra.runtime import resolve


class DeploymentFailure(Exception):
    """Azure Resource Manager would reject the deployment. The message is the template's own, of `fail()`."""


class BicepError(Exception):
    """The compiler rejects a template or its parameters. The message has each line that it rejects."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, as it would be deployed.

    Attributes:
        type: For example `Microsoft.ServiceBus/namespaces/topics`.
        name: With the names of its parents, for example `sbns-relay/domain-events`.
        id: The resource id.
        scope: Of an extension resource: the id of the resource that it extends.
        body: Its other properties.
    """

    type: str
    name: str
    id: str
    scope: str | None
    body: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """The value at a dotted path; None if there is none."""
        value: Any = self.body
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything that one deployment creates, and its outputs.

    Attributes:
        resources: Each once, by id. A resource that is deployed twice is as it was deployed last.
        outputs: The outputs of the template, by name.
        repeated: The ids of resources that are deployed more than once.
    """

    resources: list[Resource]
    outputs: dict[str, Any]
    repeated: frozenset[str] = frozenset()

    def of(self, kind: str) -> list[Resource]:
        """The resources of a type."""
        return [resource for resource in self.resources if resource.type == kind]

    def one(self, kind: str, name: str = "") -> Resource:
        """The only resource of a type, or the only one whose own name is `name`."""
        found = [resource for resource in self.of(kind) if not name or resource.name.rpartition("/")[2] == name]
        assert len(found) == 1, f"{len(found)} resources of type {kind} {name}: expected one"
        return found[0]


def read_snapshot(snapshot: Mapping[str, Any]) -> Deployment:
    """Read what `bicep snapshot` predicts.

    Values that only Azure knows, such as endpoints and the ids of an identity, are made up.
    """
    predicted = [_read_resource(each) for each in snapshot["predictedResources"]]
    by_id = {each.id: each for each in predicted}
    ids = [each.id for each in predicted]
    repeated = frozenset(each for each in by_id if ids.count(each) > 1)
    outputs = {name: resolve(each) for name, each in snapshot["outputs"].items()}
    return Deployment([by_id[each] for each in sorted(by_id)], outputs, repeated)


def _read_resource(predicted: Mapping[str, Any]) -> Resource:
    read = resolve(predicted)
    kind, name, identifier = read["type"], read["name"], read["id"]
    scope = identifier.removesuffix(f"/providers/{kind}/{name}")
    extends = scope != identifier and "/providers/" in scope
    body = {each: value for each, value in read.items() if each not in ("id", "type", "name", "apiVersion")}
    return Resource(kind, name, identifier, scope if extends else None, body)
