"""The Bicep functions that `infra/` calls. Any other is an error."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from relay.times import parse_duration

SUBSCRIPTION_ID = "00000000-0000-0000-0000-00000000abcd"
RESOURCE_GROUP = "rg-relay"


class DeploymentFailure(Exception):
    """Raised by `fail()`: Azure Resource Manager would reject the deployment with this message."""


class UnknownFunction(Exception):
    """A function that is not implemented here: add it below."""


def call(name: str, arguments: list[Any]) -> Any:
    """The value of a call.

    Raises:
        DeploymentFailure: The function is `fail`.
        UnknownFunction: The function is not implemented here.
    """
    function = _FUNCTIONS.get(name)
    if function is None:
        raise UnknownFunction(name)
    return function(*arguments)


def _unique_string(*seeds: str) -> str:
    """13 characters that depend on the seeds, like ARM's but not the same."""
    digest = hashlib.sha256("\0".join(seeds).encode()).digest()
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[byte % 32] for byte in digest[:13])


def _guid(*seeds: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\0".join(seeds)))


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)  # ARM returns True and False
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def resource_group(name: str) -> dict[str, str]:
    """A resource group of the subscription."""
    return {
        "id": f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/{name}",
        "name": name,
        "location": "westeurope",
    }


def _fail(message: str) -> Any:
    raise DeploymentFailure(message)


def _cidr_subnet(prefix: str, length: int, number: int) -> str:
    return str(list(ipaddress.ip_network(prefix).subnets(new_prefix=length))[number])


_ISO_8601 = "%Y-%m-%dT%H:%M:%SZ"


def _date_time_add(base: str, duration: str, text_format: str) -> str:
    """Only with a format: without one ARM formats the date by culture."""
    if text_format != "yyyy-MM-ddTHH:mm:ssZ":
        raise UnknownFunction(f"dateTimeAdd with the format {text_format}")
    return (datetime.strptime(base, _ISO_8601) + parse_duration(duration)).strftime(_ISO_8601)


def _date_time_to_epoch(text: str) -> int:
    return int(datetime.strptime(text, _ISO_8601).replace(tzinfo=UTC).timestamp())


def _union(*parts: Any) -> Any:
    """Of objects, each name with its last value; of arrays, each value once, in the order of its first."""
    if isinstance(parts[0], dict):
        return {name: value for each in parts for name, value in each.items()}
    found: list[Any] = []
    for value in (item for each in parts for item in each):
        if value not in found:
            found.append(value)
    return found


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bool": lambda value: value if isinstance(value, bool) else value.lower() == "true",
    "cidrSubnet": _cidr_subnet,
    "concat": lambda *arrays: [item for array in arrays for item in array],
    "contains": lambda whole, part: part in whole,
    "dateTimeAdd": _date_time_add,
    "dateTimeToEpoch": _date_time_to_epoch,
    "empty": lambda value: not value,
    "environment": lambda: {
        "name": "AzureCloud",
        "resourceManager": "https://management.azure.com/",
        "authentication": {"loginEndpoint": "https://login.microsoftonline.com/"},
        "suffixes": {"storage": "core.windows.net", "sqlServerHostname": ".database.windows.net"},
    },
    "fail": _fail,
    "filter": lambda items, predicate: [item for item in items if predicate(item)],
    "flatten": lambda value: [item for inner in value for item in inner],
    "guid": _guid,
    "int": int,
    "items": lambda value: [{"key": key, "value": value[key]} for key in sorted(value)],
    "json": json.loads,
    "join": lambda items, delimiter: delimiter.join(items),
    "length": len,
    "map": lambda items, function: [function(item) for item in items],
    "max": max,
    "range": lambda first, count: list(range(first, first + count)),
    "replace": lambda text, old, new: text.replace(old, new),
    "string": _string,
    "subscription": lambda: {
        "id": f"/subscriptions/{SUBSCRIPTION_ID}",
        "subscriptionId": SUBSCRIPTION_ID,
        "tenantId": "00000000-0000-0000-0000-0000000000ff",
    },
    "subscriptionResourceId": lambda kind, *names: (
        f"/subscriptions/{SUBSCRIPTION_ID}/providers/{kind}/{'/'.join(names)}"
    ),
    "toLower": lambda text: text.lower(),
    "trim": lambda text: text.strip(),
    "toObject": lambda items, name, value: {name(item): value(item) for item in items},
    "union": _union,
    "uniqueString": _unique_string,
    "uri": lambda base, relative: f"{base.removesuffix('/')}/{relative.removeprefix('/')}",
    "uriComponent": lambda text: quote(text, safe="-_.!~*'()"),
}
