"""Evaluates a Bicep file: every resource that it would deploy, including those of its modules, with all values.

Values that only Azure knows, such as endpoints and the ids of an identity, are made up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.infra.bicep import functions, tree
from tests.infra.bicep.deployment import Deployment, Resource
from tests.infra.bicep.expressions import BicepError, Reference, Scope, load_json
from tests.infra.bicep.parser import parse
from tests.infra.bicep.tree import Declaration, Expression


def deploy(file: Path, parameters: Mapping[str, Any], group: str = functions.RESOURCE_GROUP) -> Deployment:
    """The deployment of a file with these parameters into a resource group.

    Raises:
        BicepError: A name, a type or a value is not allowed.
        functions.DeploymentFailure: The file itself rejects the parameters.
    """
    template = _Template(file, parameters, group)
    # What is deployed twice is as it was deployed last.
    found = {resource.id: resource for resource in template.resources()}
    return Deployment(list(found.values()), template.outputs())


@dataclass(frozen=True, slots=True)
class _Reference(Reference):
    """A resource or module of a template. One in a loop has the scope and the number of its iteration."""

    declaration: Declaration
    template: _Template
    scope: Scope | None = None
    number: int = 0

    def member(self, name: str) -> Any:
        if self.declaration.kind == "module":
            return {"outputs": self.template.module(self).outputs}[name]
        resource = self.template.resource(self)
        if name == "properties":
            return _at_runtime(resource)
        return {"id": resource.id, "name": _own_name(resource)}[name]

    def at(self, number: int) -> _Reference:
        loop = self.declaration.value
        if not isinstance(loop, tree.Loop):
            raise BicepError(f"{self.declaration.name} is no loop, and has no item {number}")
        scopes = list(self.template.each(loop))
        if not 0 <= number < len(scopes):
            raise BicepError(f"{self.declaration.name} has {len(scopes)} items, and no item {number}")
        return _Reference(self.declaration, self.template, scopes[number], number)


def _own_name(resource: Resource) -> str:
    return resource.name.rpartition("/")[2]


def _at_runtime(resource: Resource) -> dict[str, Any]:
    """Made-up values of the properties that Azure sets."""
    own = _own_name(resource)
    match resource.type:
        case "Microsoft.DocumentDB/databaseAccounts":
            return {"documentEndpoint": f"https://{own}.documents.azure.com:443/"}
        case "Microsoft.ServiceBus/namespaces":
            return {"serviceBusEndpoint": f"https://{own}.servicebus.windows.net:443/"}
        case "Microsoft.Storage/storageAccounts":
            return {"primaryEndpoints": {"blob": f"https://{own}.blob.core.windows.net/"}}
        case "Microsoft.ManagedIdentity/userAssignedIdentities":
            return {kind: str(uuid.uuid5(uuid.NAMESPACE_URL, own + kind)) for kind in ("clientId", "principalId")}
        case "Microsoft.DBforPostgreSQL/flexibleServers":
            return {"fullyQualifiedDomainName": f"{own}.postgres.database.azure.com"}
        case "Microsoft.Sql/servers":
            return {"fullyQualifiedDomainName": f"{own}.database.windows.net"}
        case "Microsoft.ContainerRegistry/registries":
            return {"loginServer": f"{own}.azurecr.io"}
        case "Microsoft.App/managedEnvironments":
            return {"defaultDomain": f"{own}.westeurope.azurecontainerapps.io"}
        case "Microsoft.Insights/components":
            return {"ConnectionString": f"InstrumentationKey={uuid.uuid5(uuid.NAMESPACE_URL, own)}"}
    raise BicepError(f"the runtime properties of {resource.type} are not known here")


_TYPES: dict[str, Any] = {"string": str, "int": int, "bool": bool, "array": list, "object": dict}


class _Template(Scope):
    """One file with its parameters."""

    def __init__(self, file: Path, parameters: Mapping[str, Any], group: str) -> None:
        of_the_group = {"resourceGroup": self._resource_group, "resourceId": self._resource_id}
        super().__init__(
            {}, {"loadTextContent": self._load_text, "loadJsonContent": load_json(file), **of_the_group}
        )
        self._file = file
        self._group = group
        self._declarations = parse(file.read_text(encoding="utf-8"), file.name)
        self._resources: dict[tuple[str, int], Resource] = {}
        self._modules: dict[tuple[str, int], Deployment] = {}
        kinds = ("param", "var", "resource", "module")
        self._by_name = {each.name: each for each in self._declarations if each.kind in kinds}
        self._take(parameters)

    def _take(self, parameters: Mapping[str, Any]) -> None:
        declared = {each.name: each for each in self._declarations if each.kind == "param"}
        if unknown := set(parameters) - set(declared):
            raise BicepError(f"{self._file.name} has no parameter {', '.join(sorted(unknown))}")
        self.names |= parameters
        for name, declaration in declared.items():
            if name not in parameters and declaration.value is None:
                raise BicepError(f"{self._file.name}: the parameter {name} is not given")
            self._check(declaration, self.lookup(name))

    def _check(self, declaration: Declaration, value: Any) -> None:
        where = f"{self._file.name}: the parameter {declaration.name} is {value!r}"
        wanted = _TYPES[declaration.type]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise BicepError(f"{where}, which is not of type {declaration.type}")
        limits = {name: self.value(limit) for name, limit in declaration.decorators.items() if limit is not None}
        if value not in limits.get("allowed", [value]):
            raise BicepError(f"{where}; allowed are {limits['allowed']}")
        size = value if isinstance(value, int) else len(value)
        least = limits.get("minValue", limits.get("minLength", size))
        most = limits.get("maxValue", limits.get("maxLength", size))
        if not least <= size <= most:
            raise BicepError(f"{where}, which is not from {least} to {most}")

    def _load_text(self, _: Scope, arguments: tuple[Expression, ...]) -> str:
        match arguments:
            case (tree.Constant(str(path)),):
                return (self._file.parent / path).read_text(encoding="utf-8")
        raise BicepError(f"{self._file.name}: BCP032: the argument of loadTextContent must be a string literal")

    def _resource_group(self, scope: Scope, arguments: tuple[Expression, ...]) -> dict[str, str]:
        """That of the deployment, or the one with this name."""
        name, *_ = [*map(scope.value, arguments), self._group]
        return functions.resource_group(name)

    def _resource_id(self, scope: Scope, arguments: tuple[Expression, ...]) -> str:
        """In the deployment's group, or in the one that comes before the type."""
        values = [*map(scope.value, arguments)]
        group = self._group if "/" in values[0] else values.pop(0)
        kind, *names = values
        return f"{functions.resource_group(group)['id']}/providers/{kind}/{'/'.join(names)}"

    def lookup(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        declaration = self._by_name.get(name)
        if declaration is None:
            raise BicepError(f"{self._file.name}: the name {name} is not declared")
        if declaration.kind in ("resource", "module"):
            return _Reference(declaration, self)
        assert declaration.value is not None
        self.names[name] = value = self.value(declaration.value)
        return value

    def outputs(self) -> dict[str, Any]:
        """The outputs, by name."""
        declared = (each for each in self._declarations if each.kind == "output")
        return {each.name: self.value(each.value) for each in declared if each.value is not None}

    def resources(self) -> Iterator[Resource]:
        """Every resource of this file and of its modules, except `existing` ones."""
        for declaration in self._declarations:
            if declaration.kind not in ("resource", "module"):
                continue
            for reference in self._instances(declaration):
                if declaration.kind == "module":
                    yield from self.module(reference).resources
                elif not declaration.existing:
                    yield self.resource(reference)

    def _instances(self, declaration: Declaration) -> Iterator[_Reference]:
        match declaration.value:
            case tree.Conditional(condition, _):
                if self.value(condition):
                    yield _Reference(declaration, self)
            case tree.Loop() as loop:
                for number, scope in enumerate(self.each(loop)):
                    yield _Reference(declaration, self, scope, number)
            case _:
                yield _Reference(declaration, self)

    def _body(self, reference: _Reference) -> dict[str, Any]:
        name = reference.declaration.name
        match reference.declaration.value:
            case tree.Conditional(condition, body):
                if not self.value(condition):
                    raise BicepError(f"{self._file.name}: {name} is used but not deployed")
                return dict(self.value(body))
            case tree.Loop(_, _, body) if reference.scope is not None:
                return dict(reference.scope.value(body))
            case tree.ObjectOf() as body:
                return dict(self.value(body))
        raise BicepError(f"{self._file.name}: {name} is a loop and has no single value")

    def module(self, reference: _Reference) -> Deployment:
        """The deployment of a module."""
        key = (reference.declaration.name, reference.number)
        if key not in self._modules:
            path = (self._file.parent / reference.declaration.type).resolve()
            body = self._body(reference)
            group = body.get("scope", {"name": self._group})["name"]
            self._modules[key] = deploy(path, body.get("params", {}), group)
        return self._modules[key]

    def resource(self, reference: _Reference) -> Resource:
        """A resource with its values."""
        key = (reference.declaration.name, reference.number)
        if key not in self._resources:
            self._resources[key] = self._evaluated(reference)
        return self._resources[key]

    def _evaluated(self, reference: _Reference) -> Resource:
        body = self._body(reference)
        kind = reference.declaration.type.partition("@")[0]
        name = body.pop("name")
        parent, scope = (
            owner.template.resource(owner) if isinstance(owner, _Reference) else None
            for owner in (body.pop("parent", None), body.pop("scope", None))
        )
        body["dependsOn"] = [each.declaration.name for each in body.pop("dependsOn", [])]
        if parent:
            full, identifier = f"{parent.name}/{name}", f"{parent.id}/{kind.rpartition('/')[2]}/{name}"
        else:
            above = scope.id if scope else functions.resource_group(self._group)["id"]
            full, identifier = name, f"{above}/providers/{kind}/{name}"
        return Resource(kind, full, identifier, scope.id if scope else None, body)
