"""What `check` asks of SQL Server and Azure SQL. A login sees the objects that it has rights on."""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.statements import Statement
from relay.cli.check.sql_facts import Engine

# By name: in an elastic pool, db_id() is not the database_id of this view.
_SERVER = """
select null, (select cast(is_read_committed_snapshot_on as int) from sys.databases where name = db_name()), null,
    datediff_big(millisecond, '1970-01-01', sysutcdatetime())
"""

_OBJECTS = """
select w.purpose, case when object_id(w.name) is null then 0 else 1 end,
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'SELECT'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'INSERT'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'UPDATE'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'DELETE'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'EXECUTE'), 0)
from (values {rows}) as w (purpose, name)
"""

_COLUMNS = """
select c.name, t.name from sys.columns as c
inner join sys.types as t on t.user_type_id = c.system_type_id
where c.object_id = object_id(?)
order by c.column_id
"""

_PRIMARY_KEY = """
select c.name from sys.indexes as i
inner join sys.index_columns as k on k.object_id = i.object_id and k.index_id = i.index_id
inner join sys.columns as c on c.object_id = k.object_id and c.column_id = k.column_id
where i.object_id = object_id(?) and i.is_primary_key = 1 and k.key_ordinal > 0
order by k.key_ordinal
"""


# Identities are cached by the whole server, and nothing is vacuumed. A schema that has not been upgraded lacks the
# column: then the name is that of the row without one.
_MAINTENANCE = """
select null, null, case when kept.keep is null then 1 else 0 end, null, 0
from (select cast(null as nvarchar(10)) as keep) as absent
cross apply (select keep from changefeed.outbox_feed as f where f.table_name = ?) as kept
"""


class SqlServerCatalog:
    """See `catalog.Catalog`."""

    engine = Engine.SQL_SERVER

    def server(self) -> Statement:
        """Whether READ_COMMITTED_SNAPSHOT is on."""
        return Statement(_SERVER)

    def objects(self, names: Mapping[str, tuple[str, str]], /) -> Statement:
        """Tables and procedures, with the rights of this login."""
        rows = ", ".join(["(?, ?)"] * len(names))
        values = [value for purpose, (schema, name) in names.items() for value in (purpose, _quoted(schema, name))]
        return Statement(_OBJECTS.format(rows=rows), values)

    def version(self) -> Statement:
        """The newest migration."""
        return Statement("select coalesce(max(version), 0) from changefeed.migration")

    def columns(self, table: str, /) -> Statement:
        """Names and types."""
        return Statement(_COLUMNS, (_table(table),))

    def primary_key(self, table: str, /) -> Statement:
        """The columns in order."""
        return Statement(_PRIMARY_KEY, (_table(table),))

    def maintenance(self, table: str, /) -> Statement:
        """Whether nobody has decided how long positions are kept."""
        return Statement(_MAINTENANCE, (table,))

    def waiting(self, table: str, /) -> Statement:
        """Counts and ages by shard."""
        return Statement(
            "select shard_id, count_big(*), datediff_big(millisecond, min(time_hint), sysutcdatetime()) / 1000.0 "
            f"from {_quoted('changefeed', f'outbox:{table}')} group by shard_id order by shard_id"
        )

    def first_unread(self, table: str, shard_id: int, cursor: bytes, /) -> Statement:
        """The first position behind a cursor."""
        return Statement(
            f"select top (1) ulid from {_quoted('changefeed', f'feed:{table}')} "
            "where shard_id = ? and ulid > ? order by ulid",
            (shard_id, cursor),
        )

    def feed_rows(self, table: str, shard_id: int, cursor: bytes, count: int, /) -> Statement:
        """Events with their positions."""
        return _joined(table, "feed", "ulid", (shard_id, cursor), count)

    def outbox_rows(self, table: str, shard_id: int, after: int, count: int, /) -> Statement:
        """Events that have no position yet."""
        return _joined(table, "outbox", "order_sequence", (shard_id, after), count)


def _joined(table: str, part: str, place: str, values: tuple[object, ...], count: int) -> Statement:
    return Statement(
        f"select top ({count}) f.{place}, f.id, e.* from {_quoted('changefeed', f'{part}:{table}')} as f "
        f"left join {_table(table)} as e on e.id = f.id where f.shard_id = ? and f.{place} > ? "
        f"order by f.{place}",
        values,
    )


def _quoted(*names: str) -> str:
    return ".".join("[" + name.replace("]", "]]") + "]" for name in names)


def _table(table: str) -> str:
    schema, _, name = table.partition(".")
    return _quoted(schema, name)
