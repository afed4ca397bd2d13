"""Makes up the values that only Azure knows: the compiler leaves them as expressions of Azure Resource Manager."""

from __future__ import annotations

import ast
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote


def resolve(value: Any) -> Any:
    """Replace each expression in a value of a snapshot by a value, such as `[reference('…').clientId]`."""
    match value:
        case dict():
            return {resolve(name): resolve(each) for name, each in value.items()}
        case list():
            return [resolve(each) for each in value]
        case str() if value.startswith("[["):
            return value[1:]
        case str() if value.startswith("[") and value.endswith("]"):
            return _evaluate(ast.parse(_as_python(value[1:-1]), mode="eval").body)
    return value


def _as_python(expression: str) -> str:
    """Write the strings of an expression as Python does, and its functions that Python has as words.

    The rest of the syntax is the same:
    https://learn.microsoft.com/azure/azure-resource-manager/templates/template-expressions
    """

    def write(found: re.Match[str]) -> str:
        return f"{found[2]}_" if found[1] is None else repr(found[1].replace("''", "'"))

    return re.sub(r"'((?:[^']|'')*)'|\b(lambda|not|if)(?=\()", write, expression)


def _evaluate(node: ast.expr, item: Any = None) -> Any:
    """The value of an expression; `item` is the variable of the lambda that it is in."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Attribute(target, name):
            return _evaluate(target, item)[name]
        case ast.Subscript(target, ast.Constant(number)):
            return _evaluate(target, item)[number]
        case ast.Call(ast.Name("lambda_"), [_, body]):
            return lambda each: _evaluate(body, each)
        case ast.Call(ast.Name("lambdaVariables")):
            return item
        case ast.Call(ast.Name(function), arguments) if function in _FUNCTIONS:
            return _FUNCTIONS[function](*(_evaluate(each, item) for each in arguments))
    raise ValueError(f"{ast.unparse(node)} has no value here: add it to {__name__}")


def _reference(identifier: str, _api_version: str = "") -> dict[str, Any]:
    """Make up the properties that Azure sets."""
    kind, own = identifier.rpartition("/providers/")[2].rsplit("/", 1)
    match kind:
        case "Microsoft.DocumentDB/databaseAccounts":
            return {"documentEndpoint": f"https://{own}.documents.azure.com:443/"}
        case "Microsoft.ServiceBus/namespaces":
            return {"serviceBusEndpoint": f"https://{own}.servicebus.windows.net:443/"}
        case "Microsoft.Storage/storageAccounts":
            return {"primaryEndpoints": {"blob": f"https://{own}.blob.core.windows.net/"}}
        case "Microsoft.ManagedIdentity/userAssignedIdentities":
            return {each: str(uuid.uuid5(uuid.NAMESPACE_URL, own + each)) for each in ("clientId", "principalId")}
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
    raise ValueError(f"the runtime properties of {kind} are not known here: add them to {__name__}")


def _resource_id(subscription: str, group: str, kind: str, *names: str) -> str:
    namespace, *types = kind.split("/")
    path = "/".join(part for pair in zip(types, names, strict=True) for part in pair)
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{path}"


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "createObject": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "empty": lambda value: not value,
    "environment": lambda: {
        "resourceManager": "https://management.azure.com/",
        "authentication": {"loginEndpoint": "https://login.microsoftonline.com/"},
        "suffixes": {"storage": "core.windows.net", "sqlServerHostname": ".database.windows.net"},
    },
    "filter": lambda items, predicate: [item for item in items if predicate(item)],
    "not_": lambda value: not value,
    "reference": _reference,
    "resourceId": _resource_id,
    "split": str.split,
    "uri": lambda base, relative: f"{base.removesuffix('/')}/{relative.removeprefix('/')}",
    "format": str.format,
    "replace": str.replace,
    "concat": lambda *parts: "".join(parts),
    "toLower": str.lower,
    "uriComponent": lambda text: quote(text, safe="-_.!~*'()"),
}
