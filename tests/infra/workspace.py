"""A Log Analytics workspace in memory. KQL is run by duckdb-kql, which refuses what it does not know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Any, Self

import duckdb_kql

Row = dict[str, Any]
Rows = Mapping[str, list[Row]]

SCHEMAS: dict[str, dict[str, str]] = {
    "AppExceptions": {
        "TimeGenerated": "datetime",
        "OuterMessage": "string",
        "InnermostMessage": "string",
        "SeverityLevel": "int",
        "Properties": "dynamic",
    },
    "AppMetrics": {
        "TimeGenerated": "datetime",
        "Name": "string",
        "Sum": "real",
        "ItemCount": "int",
        "Min": "real",
        "Max": "real",
        "Properties": "dynamic",
    },
    "AppTraces": {
        "TimeGenerated": "datetime",
        "Message": "string",
        "SeverityLevel": "int",
        "Properties": "dynamic",
    },
    "FunctionAppLogs": {
        "TimeGenerated": "datetime",
        "Level": "string",
        "Category": "string",
        "ExceptionType": "string",
        "ExceptionMessage": "string",
        "Message": "string",
    },
    "_LogOperation": {
        "TimeGenerated": "datetime",
        "Category": "string",
        "Operation": "string",
        "Level": "string",
        "Detail": "string",
    },
    "CDBDataPlaneRequests5M": {
        "TimeGenerated": "datetime",
        "CollectionName": "string",
        "OperationName": "string",
        "StatusCode": "int",
    },
}
"""Tables, and those of their columns that the queries may read, with their types.

https://learn.microsoft.com/azure/azure-monitor/reference/tables/appexceptions, /appmetrics, /apptraces,
/functionapplogs and /cdbdataplanerequests5m. _LogOperation is what each workspace makes of its table Operation:
https://learn.microsoft.com/azure/azure-monitor/logs/daily-cap and /monitor-workspace.
"""

_SQL_TYPES = {
    "bool": "BOOLEAN",
    "datetime": "TIMESTAMP",
    "dynamic": "JSON",
    "int": "INTEGER",
    "real": "DOUBLE",
    "string": "VARCHAR",
}

# One by one they would take a millisecond each.
_ROWS_AT_ONCE = 250


class Workspace:
    """Holds the rows of some tables; close it, or use it as a context manager.

    A workspace has a table of a resource's own logs only when its first row has come: those in `missing` are not
    there.
    """

    def __init__(self, rows: Rows, *, missing: frozenset[str] = frozenset()) -> None:
        self._missing = missing
        self._connection = duckdb_kql.connect()
        self._connection.execute("SET threads = 1")
        for table, columns in SCHEMAS.items():
            if table not in missing:
                self._create(table, columns, rows.get(table, []))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def ask(self, query: str) -> list[Row]:
        """The rows that a query yields.

        Raises:
            duckdb_kql.KqlError: It is no query, or one that Log Analytics would refuse.
        """
        answer = self._connection.execute(_in_sql(query, self._missing))
        columns = [described[0] for described in answer.description]
        return [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]

    def _create(self, table: str, columns: dict[str, str], rows: list[Row]) -> None:
        described = ", ".join(f'"{name}" {_SQL_TYPES[kind]}' for name, kind in columns.items())
        self._connection.execute(f'CREATE TABLE "{table}" ({described})')
        for begin in range(0, len(rows), _ROWS_AT_ONCE):
            chosen = rows[begin : begin + _ROWS_AT_ONCE]
            places = ", ".join(f"({', '.join('?' for _ in columns)})" for _ in chosen)
            values = [_stored(row.get(name)) for row in chosen for name in columns]
            self._connection.execute(f'INSERT INTO "{table}" VALUES {places}', values)


@cache
def _in_sql(query: str, missing: frozenset[str]) -> str:
    """Translating takes longer than running."""
    schema = {table: list(columns) for table, columns in SCHEMAS.items() if table not in missing}
    return str(duckdb_kql.to_sql(query, schema=schema))


def _stored(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value
