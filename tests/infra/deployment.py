"""What a Bicep file and its parameters would deploy: every resource, modules unfolded, with its values.

What only Azure knows (an endpoint, the ids of an identity) has a made-up value of the right shape.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.infra import functions, syntax, tree
from tests.infra.evaluation import BicepError, Reference, Scope
from tests.infra.tree import Declaration


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, as it would be deployed.

    Attributes:
        type: As `Microsoft.ServiceBus/namespaces/topics`.
        name: With the parents' names, as `sbns-relay/domain-events`.
        id: The whole resource id.
        scope: The id of the resource that an extension resource belongs to, else None.
        body: Everything else that stands in it.
        file: The file that declares it.
    """

    type: str
    version: str
    name: str
    id: str
    scope: str | None
    body: Mapping[str, Any]
    file: str

    def at(self, path: str) -> Any:
        """The value at a dotted path, None where there is none."""
        value: Any = self.body
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything that one deployment creates, and what it answers."""

    resources: list[Resource]
    outputs: dict[str, Any]

    def of(self, kind: str) -> list[Resource]:
        """The resources of a type."""
        return [resource for resource in self.resources if resource.type == kind]

    def one(self, kind: str, name: str = "") -> Resource:
        """The only resource of a type (whose own name is `name`, where it is given)."""
        found = [resource for resource in self.of(kind) if not name or resource.name.rpartition("/")[2] == name]
        assert len(found) == 1, f"{len(found)} resources of type {kind} {name}: expected one"
        return found[0]


def deploy(file: Path, parameters: Mapping[str, Any]) -> Deployment:
    """What `file` deploys with these parameters.

    Raises:
        BicepError: Something does not fit: a name, a type, a value that is not allowed.
        functions.DeploymentFailure: The file itself refuses the parameters.
    """
    key = (_sources(file), json.dumps(parameters))
    if key not in _deployed:
        template = _Template(file, parameters)
        _deployed[key] = Deployment(list(template.resources()), template.outputs())
    return _deployed[key]


_LOADING = "loadTextContent"
# By all that it depends on: most modules of a changed copy are those of the original.
_deployed: dict[tuple[Any, str], Deployment] = {}


def _sources(file: Path) -> tuple[Any, ...]:
    """A file's text and those of the files that it reads."""
    text = file.read_text(encoding="utf-8")
    modules, texts = _reads(text, file.name)
    beneath = [_sources(file.parent / module) for module in modules]
    beneath += [((file.parent / path).read_text(encoding="utf-8"),) for path in texts]
    return (file.name, text, *beneath)


@functools.cache
def _reads(text: str, source: str) -> tuple[list[str], list[str]]:
    """The paths of a file's modules, and of the texts that it loads: these are literals, or refused."""
    declarations = syntax.parse(text, source)
    arguments = [
        node.arguments[0]
        for node in (tree.walk(declarations) if _LOADING in text else ())
        if isinstance(node, tree.Call) and node.function == _LOADING
    ]
    texts = [str(each.value) for each in arguments if isinstance(each, tree.Constant)]
    modules = [each.type for each in declarations if each.kind == "module"]
    return modules, texts


def read_parameters(file: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The parameters that a .bicepparam file gives, `readEnvironmentVariable` reading `environment`."""
    scope = Scope({}, environment or {})
    found = {}
    for declaration in syntax.parse(file.read_text(encoding="utf-8"), file.name):
        if declaration.kind in ("param", "var") and declaration.value is not None:
            value = scope.declare(declaration.name, declaration.value)
            if declaration.kind == "param":
                found[declaration.name] = value
    return found


@dataclass(frozen=True, slots=True)
class _Reference(Reference):
    """A resource or module, by its name in a file."""

    declaration: Declaration
    template: _Template
    item: tuple[dict[str, Any], int] | None = None

    def member(self, name: str) -> Any:
        if self.declaration.kind == "module":
            if name == "outputs":
                return self.template.module(self).outputs
            raise BicepError(f"module {self.declaration.name} has no {name}")
        resource = self.template.resource(self)
        return {"id": resource.id, "name": resource.name.rpartition("/")[2]}.get(name) or _at_runtime(
            resource, name
        )


def _at_runtime(resource: Resource, name: str) -> Any:
    own = resource.name.rpartition("/")[2]
    if name != "properties":
        return resource.body[name]
    match resource.type:
        case "Microsoft.DocumentDB/databaseAccounts":
            return {"documentEndpoint": f"https://{own}.documents.azure.com:443/"}
        case "Microsoft.ServiceBus/namespaces":
            return {"serviceBusEndpoint": f"https://{own}.servicebus.windows.net:443/"}
        case "Microsoft.Storage/storageAccounts":
            return {"primaryEndpoints": {"blob": f"https://{own}.blob.core.windows.net/"}}
        case "Microsoft.ManagedIdentity/userAssignedIdentities":
            return {kind: str(uuid.uuid5(uuid.NAMESPACE_URL, own + kind)) for kind in ("clientId", "principalId")}
        case "Microsoft.Insights/components":
            return {"ConnectionString": f"InstrumentationKey={uuid.uuid5(uuid.NAMESPACE_URL, own)}"}
    raise BicepError(f"what {resource.type} tells at runtime is not known here")


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "int": int,
    "bool": bool,
    "array": list,
    "object": dict,
}


def _size(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


class _Template(Scope):
    """One file with its parameters given."""

    def __init__(self, file: Path, parameters: Mapping[str, Any]) -> None:
        super().__init__({}, {}, file.parent)
        self._file = file
        self._declarations = syntax.parse(file.read_text(encoding="utf-8"), file.name)
        self._resources: dict[tuple[str, int], Resource] = {}
        self._modules: dict[tuple[str, int], Deployment] = {}
        self._by_name = self._distinct()
        self._take(parameters)

    def _distinct(self) -> dict[str, Declaration]:
        found: dict[str, Declaration] = {}
        for declaration in self._declarations:
            if declaration.kind == "output":
                continue
            if declaration.name in found and declaration.kind not in ("targetScope", "metadata"):
                raise BicepError(f"{self._file.name}: {declaration.name} is declared twice")
            found[declaration.name] = declaration
        return found

    def _take(self, parameters: Mapping[str, Any]) -> None:
        declared = {each.name: each for each in self._declarations if each.kind == "param"}
        if unknown := set(parameters) - set(declared):
            raise BicepError(f"{self._file.name} has no parameter {', '.join(sorted(unknown))}")
        for name, declaration in declared.items():
            if name in parameters:
                self.names[name] = parameters[name]
            elif declaration.value is None:
                raise BicepError(f"{self._file.name}: the parameter {name} is not given")
            self._check(declaration, self.lookup(name))

    def _check(self, declaration: Declaration, value: Any) -> None:
        where = f"{self._file.name}: the parameter {declaration.name}"
        wanted = _TYPES[declaration.type]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise BicepError(f"{where} is {value!r}: it is to be of type {declaration.type}")
        limits = {name: self.value(limit) for name, limit in declaration.decorators.items() if limit is not None}
        if "allowed" in limits and value not in limits["allowed"]:
            raise BicepError(f"{where} is {value!r}: allowed are {limits['allowed']}")
        size = _size(value)
        least = limits.get("minValue", limits.get("minLength", size))
        most = limits.get("maxValue", limits.get("maxLength", size))
        if not least <= size <= most:
            raise BicepError(f"{where} is {value!r}: it is to be from {least} to {most}")

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
        found = {}
        for declaration in self._declarations:
            if declaration.kind == "output" and declaration.value is not None:
                found[declaration.name] = value = self.value(declaration.value)
                if not isinstance(value, _TYPES[declaration.type]):
                    raise BicepError(f"{self._file.name}: output {declaration.name} is {value!r}")
        return found

    def resources(self) -> Iterator[Resource]:
        """Every resource of this file and of its modules that is not `existing`."""
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
                for _, item in self.each(loop):
                    yield _Reference(declaration, self, item)
            case _:
                yield _Reference(declaration, self)

    def _body(self, reference: _Reference) -> dict[str, Any]:
        expression = reference.declaration.value
        match expression:
            case tree.Conditional(condition, body):
                if not self.value(condition):
                    raise BicepError(f"{self._file.name}: {reference.declaration.name} is not deployed, yet used")
                return dict(self.value(body))
            case tree.Loop(_, _, _, body) if reference.item is not None:
                return dict(self.inner(reference.item[0]).value(body))
            case tree.ObjectOf():
                return dict(self.value(expression))
        raise BicepError(f"{self._file.name}: {reference.declaration.name} is one of several, and used as one")

    def module(self, reference: _Reference) -> Deployment:
        """What the module's own file deploys, with what is given to it."""
        key = (reference.declaration.name, reference.item[1] if reference.item else 0)
        if key not in self._modules:
            body = self._body(reference)
            path = (self._file.parent / reference.declaration.type).resolve()
            self._modules[key] = deploy(path, body.get("params", {}))
        return self._modules[key]

    def resource(self, reference: _Reference) -> Resource:
        """The resource with its values."""
        key = (reference.declaration.name, reference.item[1] if reference.item else 0)
        if key not in self._resources:
            self._resources[key] = self._resource(reference)
        return self._resources[key]

    def _resource(self, reference: _Reference) -> Resource:
        body = self._body(reference)
        kind, _, version = reference.declaration.type.partition("@")
        name, parent, scope = body.pop("name"), body.pop("parent", None), body.pop("scope", None)
        body["dependsOn"] = [each.declaration.name for each in body.pop("dependsOn", [])]
        if isinstance(parent, _Reference):
            above = parent.template.resource(parent)
            full, identifier = f"{above.name}/{name}", f"{above.id}/{kind.rpartition('/')[2]}/{name}"
        else:
            group = functions.call("resourceGroup", [])["id"]
            of = scope.template.resource(scope).id if isinstance(scope, _Reference) else group
            full, identifier = name, f"{of}/providers/{kind}/{name}"
        owner = scope.template.resource(scope).id if isinstance(scope, _Reference) else None
        return Resource(kind, version, full, identifier, owner, body, self._file.name)
