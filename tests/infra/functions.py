"""The functions of Bicep that `infra/` calls. An unknown one is an error: none is passed over in silence."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from relay.cli.times import parse_duration

SUBSCRIPTION_ID = "00000000-0000-0000-0000-00000000abcd"
RESOURCE_GROUP = "rg-relay"


class DeploymentFailure(Exception):
    """What `fail()` raises: Azure Resource Manager would refuse the deployment with this text."""


class UnknownFunction(Exception):
    """A function that is not known here: teach it, or write the Bicep without it."""


def subscription_resource_id(kind: str, *names: str) -> str:
    """The id of a resource of the subscription, as a built-in role definition."""
    return f"/subscriptions/{SUBSCRIPTION_ID}/providers/{kind}/{'/'.join(names)}"


def call(name: str, arguments: list[Any]) -> Any:
    """The value of a call.

    Raises:
        DeploymentFailure: It is `fail`.
        UnknownFunction: It is none of these.
    """
    function = _FUNCTIONS.get(name)
    if function is None:
        raise UnknownFunction(name)
    return function(*arguments)


def _unique_string(*seeds: str) -> str:
    """13 characters that depend on the seeds, as ARM's; not the same characters."""
    digest = hashlib.sha256("\0".join(seeds).encode()).digest()
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[byte % 32] for byte in digest[:13])


def _guid(*seeds: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "\0".join(seeds)))


def _union(*values: Any) -> Any:
    if isinstance(values[0], list):
        found: list[Any] = []
        for item in (item for value in values for item in value):
            if item not in found:
                found.append(item)
        return found
    return {name: item for value in values for name, item in value.items()}


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)  # ARM writes True and False
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _resource_group() -> dict[str, str]:
    return {
        "id": f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/{RESOURCE_GROUP}",
        "name": RESOURCE_GROUP,
        "location": "westeurope",
    }


def _fail(message: str) -> Any:
    raise DeploymentFailure(message)


def _cidr_subnet(prefix: str, length: int, number: int) -> str:
    return str(list(ipaddress.ip_network(prefix).subnets(new_prefix=length))[number])


_ISO_8601 = "%Y-%m-%dT%H:%M:%SZ"


def _date_time_add(base: str, duration: str, text_format: str) -> str:
    """With its format given: without one ARM writes the date in a culture's own way."""
    if text_format != "yyyy-MM-ddTHH:mm:ssZ":
        raise UnknownFunction(f"dateTimeAdd with the format {text_format}")
    return (datetime.strptime(base, _ISO_8601) + parse_duration(duration)).strftime(_ISO_8601)


def _date_time_to_epoch(text: str) -> int:
    return int(datetime.strptime(text, _ISO_8601).replace(tzinfo=UTC).timestamp())


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bool": lambda value: value if isinstance(value, bool) else value.lower() == "true",
    "cidrSubnet": _cidr_subnet,
    "concat": lambda *values: "".join(values) if isinstance(values[0], str) else [x for v in values for x in v],
    "contains": lambda container, item: item in container,
    "dateTimeAdd": _date_time_add,
    "dateTimeToEpoch": _date_time_to_epoch,
    "empty": lambda value: not value,
    "environment": lambda: {"name": "AzureCloud", "suffixes": {"storage": "core.windows.net"}},
    "fail": _fail,
    "first": lambda value: value[0] if value else None,
    "flatten": lambda value: [item for inner in value for item in inner],
    "format": lambda template, *values: template.format(*values),
    "guid": _guid,
    "int": int,
    "items": lambda value: [{"key": key, "value": value[key]} for key in sorted(value)],
    "join": lambda items, delimiter: delimiter.join(items),
    "json": json.loads,
    "length": len,
    "max": lambda *values: max(values[0]) if isinstance(values[0], list) else max(values),
    "min": lambda *values: min(values[0]) if isinstance(values[0], list) else min(values),
    "range": lambda start, count: list(range(start, start + count)),
    "replace": lambda text, old, new: text.replace(old, new),
    "resourceGroup": _resource_group,
    "resourceId": lambda kind, *names: f"{_resource_group()['id']}/providers/{kind}/{'/'.join(names)}",
    "split": lambda text, delimiter: text.split(delimiter),
    "string": _string,
    "subscription": lambda: {
        "id": f"/subscriptions/{SUBSCRIPTION_ID}",
        "subscriptionId": SUBSCRIPTION_ID,
        "tenantId": "00000000-0000-0000-0000-0000000000ff",
    },
    "subscriptionResourceId": subscription_resource_id,
    "take": lambda value, count: value[:count],
    "toLower": lambda text: text.lower(),
    "toUpper": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "union": _union,
    "uniqueString": _unique_string,
}
