"""The resources that a deployment creates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """Everything that one deployment creates, and its outputs."""

    resources: list[Resource]
    outputs: dict[str, Any]

    def of(self, kind: str) -> list[Resource]:
        """The resources of a type."""
        return [resource for resource in self.resources if resource.type == kind]

    def one(self, kind: str, name: str = "") -> Resource:
        """The only resource of a type, or the only one whose own name is `name`."""
        found = [resource for resource in self.of(kind) if not name or resource.name.rpartition("/")[2] == name]
        assert len(found) == 1, f"{len(found)} resources of type {kind} {name}: expected one"
        return found[0]
