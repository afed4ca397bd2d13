"""An in-memory Log Analytics workspace. duckdb-kql runs the queries, and rejects KQL that it does not support."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Any, Self

Row = dict[str, Any]
Rows = Mapping[str, list[Row]]

SCHEMAS: dict[str, dict[str, str]] = {
    "AppDependencies": {
        "TimeGenerated": "datetime",
        "Name": "string",
        "DependencyType": "string",
        "Target": "string",
        "Success": "bool",
        "Properties": "dynamic",
    },
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
    "Usage": {
        "TimeGenerated": "datetime",
        "DataType": "string",
        "Quantity": "real",
    },
    "CDBDataPlaneRequests5M": {
        "TimeGenerated": "datetime",
        "CollectionName": "string",
        "OperationName": "string",
        "StatusCode": "int",
    },
}
"""The tables, and the columns that queries may use, with their types.

https://learn.microsoft.com/azure/azure-monitor/reference/tables/appdependencies, /appexceptions, /appmetrics,
/apptraces, /functionapplogs, /usage and /cdbdataplanerequests5m. _LogOperation is a view of the table Operation:
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

# A single-row insert takes a millisecond.
_ROWS_AT_ONCE = 250


class Workspace:
    """The rows of some tables. A context manager.

    A table of resource logs exists only after its first row has arrived. Tables in `missing` do not exist.
    """

    def __init__(self, rows: Rows, *, missing: frozenset[str] = frozenset()) -> None:
        # Only a query needs DuckDB: the types above are imported without it.
        import duckdb_kql

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

    def query(self, text: str) -> list[Row]:
        """The rows that a query returns.

        Raises:
            duckdb_kql.KqlError: The query is invalid or not supported.
        """
        answer = self._connection.execute(_in_sql(text, self._missing))
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
    """The query in SQL. Cached, as translating takes longer than running."""
    import duckdb_kql

    schema = {table: list(columns) for table, columns in SCHEMAS.items() if table not in missing}
    return str(duckdb_kql.to_sql(query, schema=schema))


def _stored(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value
