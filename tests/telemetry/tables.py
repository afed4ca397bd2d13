"""From the exporter's envelopes to the rows of a Log Analytics workspace, as Azure maps them.

Columns: https://learn.microsoft.com/azure/azure-monitor/reference/tables/apptraces, /appmetrics, /appdependencies,
/apprequests, /appexceptions, /appperformancecounters, /functionapplogs, /cdbdataplanerequests5m.
From classic names to these: https://learn.microsoft.com/azure/azure-monitor/app/convert-classic-resource.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tests.infra.workspace import Row, Rows
from tests.telemetry.ingestion import Envelope

# The names of the contract's enumeration, in the order of their numbers.
_SEVERITIES = ("Verbose", "Information", "Warning", "Error", "Critical")


def rows_of(envelopes: Iterable[Envelope]) -> dict[str, list[Row]]:
    """The rows of each table.

    Raises:
        KeyError: An envelope of a kind that none of the tables takes.
    """
    tables: dict[str, list[Row]] = defaultdict(list)
    for envelope in envelopes:
        data = envelope["data"]["baseData"]
        table, columns = _READERS[envelope["data"]["baseType"]](data)
        tables[table].append(_common(envelope, data) | columns)
    return tables


def merged(*parts: Rows) -> dict[str, list[Row]]:
    """All rows of several collections."""
    tables: dict[str, list[Row]] = defaultdict(list)
    for part in parts:
        for table, rows in part.items():
            tables[table] += rows
    return tables


def moved(tables: Rows, **by: float) -> dict[str, list[Row]]:
    """The same rows at another time; `minutes=-20` is twenty minutes earlier."""
    return {
        name: [row | {"TimeGenerated": row["TimeGenerated"] + timedelta(**by)} for row in rows]
        for name, rows in tables.items()
    }


def ago(**time: float) -> datetime:
    """The moment that long ago, in UTC."""
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(**time)


def _common(envelope: Envelope, data: Row) -> Row:
    tags = envelope["tags"]
    return {
        "TimeGenerated": datetime.fromisoformat(envelope["time"]).replace(tzinfo=None),
        "OperationId": tags.get("ai.operation.id", ""),
        "ParentId": tags.get("ai.operation.parentId", ""),
        "AppRoleName": tags.get("ai.cloud.role", ""),
        "AppRoleInstance": tags.get("ai.cloud.roleInstance", ""),
        # A sampled row represents as many as were left out.
        "ItemCount": round(100 / envelope.get("sampleRate", 100)),
        "Properties": data.get("properties") or {},
    }


def _trace(data: Row) -> tuple[str, Row]:
    return "AppTraces", {"Message": data["message"], "SeverityLevel": _severity(data)}


def _exception(data: Row) -> tuple[str, Row]:
    first, last = data["exceptions"][0], data["exceptions"][-1]
    return "AppExceptions", {
        "ExceptionType": first["typeName"],
        "OuterType": first["typeName"],
        "OuterMessage": first["message"],
        "InnermostMessage": last["message"],
        "SeverityLevel": _severity(data),
    }


def _metric(data: Row) -> tuple[str, Row]:
    [point] = data["metrics"]
    if point["name"].startswith("\\"):
        return "AppPerformanceCounters", {"Name": point["name"], "Value": point["value"]}
    return "AppMetrics", {
        "Name": point["name"],
        "Sum": point["value"],
        "ItemCount": point.get("count", 1),
        "Min": point.get("min", point["value"]),
        "Max": point.get("max", point["value"]),
    }


def _dependency(data: Row) -> tuple[str, Row]:
    return "AppDependencies", {
        "Id": data["id"],
        "Name": data["name"],
        "DependencyType": data["type"],
        "Target": data.get("target", ""),
        "ResultCode": data["resultCode"],
        "DurationMs": _milliseconds(data["duration"]),
        "Success": data["success"],
    }


def _request(data: Row) -> tuple[str, Row]:
    return "AppRequests", {
        "Id": data["id"],
        "Name": data["name"],
        "ResultCode": data["responseCode"],
        "DurationMs": _milliseconds(data["duration"]),
        "Success": data["success"],
    }


_READERS = {
    "MessageData": _trace,
    "ExceptionData": _exception,
    "MetricData": _metric,
    "RemoteDependencyData": _dependency,
    "RequestData": _request,
}


def _severity(data: Row) -> int | None:
    level = data.get("severityLevel")
    return _SEVERITIES.index(level) if isinstance(level, str) else level


def _milliseconds(duration: str) -> float:
    """Of `d.hh:mm:ss.fff`."""
    days, clock = duration.split(".", 1)
    hours, minutes, seconds = clock.split(":")
    return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60_000 + float(seconds) * 1000
