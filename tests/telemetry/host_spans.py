"""The spans that the Functions host exports by itself: how many in a minute, and their rows in the workspace.

The numbers are those of host 4.1037 with extension 4.8.2 and Cosmos SDK 3.64: idle, with four physical partitions
and the default delay between two polls. The host itself cannot run here, so each row is put together: attributes
as the Cosmos SDK sets them (azure-cosmos-dotnet-v3, Telemetry/OpenTelemetry), columns as the host's exporter fills
them (azure-sdk-for-net, Azure.Monitor.OpenTelemetry.Exporter, RemoteDependencyData and TraceHelper).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.infra.workspace import Row
from tests.telemetry.tables import ago

POLLS, LEASES, LOCK = 496, 65, 12
"""Requests in a minute: to the change feed, to the lease container, and to the blob that is the host's lock."""

MINUTES_A_DAY = 1440

_ACCOUNT = "cosmos-relay-abcdefghijklm.documents.azure.com"
_STORAGE = "strelayabcdefghijklm.blob.core.windows.net"
_GUID = "00000000-0000-0000-0000-000000000000"


def a_minute(*, http: bool = False, failed: int = 0) -> list[Row]:
    """The rows of a minute, of which the first `failed` polls failed.

    With `http`, a span is that of the request, and otherwise that of the SDK's operation.
    """
    make = _http_row if http else _operation_row
    return [
        *(make("query_change_feed", "data", success=number >= failed) for number in range(POLLS)),
        *(make("replace_item", "leases") for _ in range(LEASES)),
        *(_lock_row(http=http) for _ in range(LOCK)),
    ]


def billed_bytes(row: Row) -> int:
    """The estimated size of a row: the length of the text of each column that has a value.

    https://learn.microsoft.com/azure/azure-monitor/logs/cost-logs#data-size-calculation. The real size of a stored
    row is in its column _BilledSize.
    """
    return sum(len(text) for text in _texts(row))


def _texts(row: Row) -> Iterator[str]:
    for value in row.values():
        yield json.dumps(value) if isinstance(value, dict) else "" if value is None else str(value)


def _row(name: str, kind: str, target: str, properties: dict[str, str], **columns: Any) -> Row:
    common = {
        "TenantId": _GUID,
        "TimeGenerated": ago(seconds=30),
        "Id": "0123456789abcdef",
        "Target": target,
        "DependencyType": kind,
        "Name": name,
        "Success": True,
        "ResultCode": "0",
        "DurationMs": 4.2511,
        "PerformanceBucket": "<250ms",
        "Properties": properties,
        "OperationName": name,
        "OperationId": "0123456789abcdef0123456789abcdef",
        "ParentId": "0123456789abcdef",
        "AppRoleName": "func-relay-abcdefghijklm",
        "AppRoleInstance": "0--0123456789abcdef0123456789abcdef",
        "ClientType": "PC",
        "ClientIP": "0.0.0.0",
        "IKey": _GUID,
        "SDKVersion": "dotnet8.0.20:otel1.12.0:ext1.4.0",
        "ItemCount": 1,
        "ResourceGUID": _GUID,
        "SourceSystem": "Azure",
    }
    return common | columns


def _operation_row(operation: str, container: str, *, success: bool = True) -> Row:
    properties = {
        "db.name": "outbox",
        "db.operation": operation,
        "db.cosmosdb.container": container,
        "db.cosmosdb.user_agent": "cosmos-netstandard-sdk/3.64.0|1|X64|Linux 6.1|.NET 8.0.20|N|F 00000010|",
        "db.cosmosdb.machine_id": f"vmId:{_GUID}",
        "db.cosmosdb.client_id": _GUID,
        "db.cosmosdb.connection_mode": "Gateway",
        "db.cosmosdb.operation_type": "ReadFeed",
        "db.cosmosdb.request_content_length_bytes": "0",
        "db.cosmosdb.response_content_length_bytes": "0",
        "db.cosmosdb.status_code": "304" if success else "503",
        "db.cosmosdb.sub_status_code": "0",
        "db.cosmosdb.request_charge": "1",
        "db.cosmosdb.item_count": "0",
        "db.cosmosdb.activity_id": _GUID,
        "db.cosmosdb.regions_contacted": "West Europe",
    }
    kind = "InProc | Microsoft.DocumentDB"
    return _row(f"{operation} {container}", kind, f"{_ACCOUNT} | outbox", properties, Success=success)


def _http_row(operation: str, container: str, *, success: bool = True) -> Row:
    path = f"/dbs/outbox/colls/{container}/docs"
    method = "GET" if operation == "query_change_feed" else "PUT"
    properties = {"http.request.method": method, "network.protocol.version": "1.1"}
    code = "304" if success else "503"
    data = f"https://{_ACCOUNT}{path}"
    return _row(f"{method} {path}", "HTTP", _ACCOUNT, properties, Data=data, ResultCode=code, Success=success)


def _lock_row(*, http: bool) -> Row:
    path = "/azure-webjobs-hosts/locks/func-relay-abcdefghijklm/host"
    if http:
        data = f"https://{_STORAGE}{path}?comp=lease"
        return _row(f"PUT {path}", "HTTP", _STORAGE, {}, Data=data, ResultCode="200")
    return _row("BlobLeaseClient.Renew", "InProc | Microsoft.Storage", "", {"az.namespace": "Microsoft.Storage"})
