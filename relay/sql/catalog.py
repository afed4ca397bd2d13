"""The questions that `check` asks of a database, in its own SQL, and what reading a feed takes there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from changefeed.connections import is_postgresql
from changefeed.postgresql.dialect import PostgresDialect
from changefeed.sqlserver.dialect import SqlServerDialect
from changefeed.statements import Dialect, Statement
from changefeed.tables import Tables, names_of

RIGHTS = ("select", "insert", "update", "delete", "execute")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The questions to one kind of database; `table` is `schema.Table`.

    Attributes:
        engine: The kind of database.
        dialect: Its dialect.
        needed: The rights that the relay needs, by the purposes of `purposes_of`.
        narrow: The types of text that turn letters which a collation lacks into question marks.
        server: One row: the default isolation level of PostgreSQL, whether READ_COMMITTED_SNAPSHOT is on in SQL
            Server, whether autovacuum runs, and the clock in milliseconds since 1970; NULL where there is no such
            thing.
        objects_sql: For each of `rows` (a purpose and the parameters of a name): the purpose, whether there is
            such a table or routine, and whether this login has each of RIGHTS on it.
        columns_sql: The columns of a table: name, and type without its length.
        primary_key_sql: The columns of its primary key, in order: name.
        parameters: A schema and a name as parameters of these.
        maintenance: Of a table, one row: how many numbers a session takes from the outbox's sequence at a time,
            whether commits notify readers, whether it is not decided how long positions are kept, the tables of
            the feed without autovacuum joined by ', ', and for how many seconds the oldest visible transaction has
            been open; NULL where there is no such thing.
    """

    engine: str
    dialect: Dialect
    needed: Mapping[str, Sequence[str]]
    narrow: Collection[str]
    server: Statement
    objects_sql: str
    columns_sql: str
    primary_key_sql: str
    parameters: Callable[[str, str], tuple[str, ...]]
    maintenance: Callable[[str], Statement]

    def objects(self, table: str) -> Statement:
        values = [(purpose, *self.parameters(*name)) for purpose, name in purposes_of(table).items()]
        rows = ", ".join(f"({', '.join('?' * len(each))})" for each in values)
        return Statement(self.objects_sql.format(rows=rows), [value for each in values for value in each])

    def columns(self, table: str) -> Statement:
        return Statement(self.columns_sql, self.parameters(*_split(table)))

    def primary_key(self, table: str) -> Statement:
        return Statement(self.primary_key_sql, self.parameters(*_split(table)))


def purposes_of(table: str) -> dict[str, tuple[str, str]]:
    """The schema and the name of everything that a feed consists of, by what it is for."""
    return {
        "events": _split(table),
        "migration": ("changefeed", "migration"),
        "outbox_feed": ("changefeed", "outbox_feed"),
        "quarantine": ("relay", "item"),
        **{kind: ("changefeed", own) for kind, own in names_of(table).items()},
    }


def _split(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name


_NEEDED = {
    "read_events": ("execute",),
    "read_feed": ("execute",),
    "has_news": ("execute",),
    "events": ("select",),
    "claim": ("select", "insert", "update"),
}

# A transaction that holds back vacuum has a snapshot or a number of its own. Those of other roles are visible with
# the rights of pg_read_all_stats.
_POSTGRESQL_MAINTENANCE = """
select (select s.seqcache from pg_sequence s
        where s.seqrelid = pg_get_serial_sequence(?, 'order_sequence')::regclass),
       (select f.channel is not null from changefeed.outbox_feed f where f.table_name = ?),
       -- As JSON: a schema that has not been upgraded lacks the column.
       (select pg_catalog.to_jsonb(f) ->> 'keep' is null from changefeed.outbox_feed f where f.table_name = ?),
       (select pg_catalog.string_agg(c.relname, ', ' order by c.relname) from pg_class c
        join pg_namespace n on n.oid = c.relnamespace, pg_catalog.unnest(c.reloptions) as o
        where n.nspname = 'changefeed' and c.relname in (?, ?)
        and o in ('autovacuum_enabled=false', 'autovacuum_enabled=off', 'autovacuum_enabled=0',
                  'autovacuum_enabled=no')),
       (select coalesce(max(extract(epoch from clock_timestamp() - began)), 0)::float from (
            select xact_start as began from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid()
            and (backend_xmin is not null or backend_xid is not null)
            union all select prepared from pg_prepared_xacts where database = current_database()
        ) as open_transactions)
"""


def _postgresql_maintenance(table: str) -> Statement:
    names = names_of(table)
    outbox = Tables(PostgresDialect(), table).outbox
    return Statement(_POSTGRESQL_MAINTENANCE, (outbox, table, table, names["outbox"], names["feed"]))


# PostgreSQL, whose system catalogs can be read by every role. An operator may run `check` with many rights, and a
# search path in which others may create. A function or operator that takes its arguments exactly as they are would
# be preferred: so those of the catalog are named with their schema, or given the types that they take.
POSTGRESQL = Catalog(
    engine="PostgreSQL",
    dialect=PostgresDialect(),
    # Its functions read the feed with the rights of the caller.
    needed={**_NEEDED, "feed": ("select",), "outbox_feed": ("select",)},
    narrow=(),
    parameters=lambda schema, name: (schema, name),
    server=Statement("""
select current_setting('transaction_isolation'), null, current_setting('autovacuum') = 'on',
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint
"""),
    objects_sql="""
select w.purpose, c.oid is not null or p.oid is not null,
       coalesce(visible and has_table_privilege(c.oid, 'select'), false),
       coalesce(visible and has_table_privilege(c.oid, 'insert'), false),
       coalesce(visible and has_table_privilege(c.oid, 'update'), false),
       coalesce(visible and has_table_privilege(c.oid, 'delete'), false),
       coalesce(visible and has_function_privilege(p.oid, 'execute'), false)
from (values {rows}) as w (purpose, schema, name)
left join lateral (
    select n.oid, has_schema_privilege(n.oid, 'usage') as visible from pg_namespace n where n.nspname = w.schema
) as n on true
left join pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p', 'v', 'm', 'f')
left join pg_proc p on p.pronamespace = n.oid and p.proname = w.name
""",
    # Of a domain, the type below it.
    columns_sql="""
select a.attname, format_type(coalesce(nullif(t.typbasetype, 0::oid), t.oid), null)
from pg_attribute a
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_type t on t.oid = a.atttypid
where n.nspname = ? and c.relname = ? and a.attnum > 0 and not a.attisdropped
order by a.attnum
""",
    primary_key_sql="""
select a.attname
from pg_index i
join pg_class c on c.oid = i.indrelid
join pg_namespace n on n.oid = c.relnamespace
cross join pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where n.nspname = ? and c.relname = ? and i.indisprimary
order by k.place
""",
    maintenance=_postgresql_maintenance,
)

# SQL Server and Azure SQL, where a login sees the objects that it has rights on.
SQLSERVER = Catalog(
    engine="SQL Server",
    dialect=SqlServerDialect(),
    needed=_NEEDED,
    narrow=("varchar", "char", "text"),
    parameters=lambda schema, name: (".".join(map(SqlServerDialect().quoted, (schema, name))),),
    # By name: in an elastic pool, db_id() is not the database_id of this view.
    server=Statement("""
select null, (select cast(is_read_committed_snapshot_on as int) from sys.databases where name = db_name()), null,
    datediff_big(millisecond, '1970-01-01', sysutcdatetime())
"""),
    objects_sql="""
select w.purpose, case when object_id(w.name) is null then 0 else 1 end,
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'SELECT'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'INSERT'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'UPDATE'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'DELETE'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'EXECUTE'), 0)
from (values {rows}) as w (purpose, name)
""",
    columns_sql="""
select c.name, t.name from sys.columns as c
inner join sys.types as t on t.user_type_id = c.system_type_id
where c.object_id = object_id(?)
order by c.column_id
""",
    primary_key_sql="""
select c.name from sys.indexes as i
inner join sys.index_columns as k on k.object_id = i.object_id and k.index_id = i.index_id
inner join sys.columns as c on c.object_id = k.object_id and c.column_id = k.column_id
where i.object_id = object_id(?) and i.is_primary_key = 1 and k.key_ordinal > 0
order by k.key_ordinal
""",
    # Identities are cached by the whole server, and nothing is vacuumed. A schema that has not been upgraded lacks
    # the column: then the name is that of the row without one.
    maintenance=lambda table: Statement(
        """
select null, null, case when kept.keep is null then 1 else 0 end, null, 0
from (select cast(null as nvarchar(10)) as keep) as absent
cross apply (select keep from changefeed.outbox_feed as f where f.table_name = ?) as kept
""",
        (table,),
    ),
)


def catalog_of(connection_string: str) -> Catalog:
    """The catalog of the database that the setting SQL names."""
    return POSTGRESQL if is_postgresql(connection_string) else SQLSERVER
