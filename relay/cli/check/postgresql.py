"""What `check` asks of PostgreSQL. The system catalogs can be read by every role.

An operator may run it with many rights, and a search path in which others may create. A function or operator that
takes its arguments exactly as they are would be preferred: so those of the catalog are named with their schema, or
given the types that they take.
"""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.postgresql.dialect import PostgresDialect
from changefeed.statements import Statement
from relay.cli.check.sql_facts import Engine

_DIALECT = PostgresDialect()

_SERVER = """
select current_setting('transaction_isolation'), null, current_setting('autovacuum') = 'on',
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint
"""

_OBJECTS = """
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
"""

_COLUMNS = """
select a.attname, format_type(coalesce(nullif(t.typbasetype, 0::oid), t.oid), null)
from pg_attribute a
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_type t on t.oid = a.atttypid
where n.nspname = ? and c.relname = ? and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""

_PRIMARY_KEY = """
select a.attname
from pg_index i
join pg_class c on c.oid = i.indrelid
join pg_namespace n on n.oid = c.relnamespace
cross join pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where n.nspname = ? and c.relname = ? and i.indisprimary
order by k.place
"""

# A transaction that holds back vacuum has a snapshot or a number of its own. Those of other roles are visible with
# the rights of pg_read_all_stats.
_MAINTENANCE = """
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


class PostgresCatalog:
    """See `catalog.Catalog`."""

    engine = Engine.POSTGRESQL

    def server(self) -> Statement:
        """The default isolation level, and whether autovacuum runs."""
        return Statement(_SERVER)

    def objects(self, names: Mapping[str, tuple[str, str]], /) -> Statement:
        """Tables and functions, with the rights of this role."""
        rows = ", ".join(["(?, ?, ?)"] * len(names))
        values = [value for purpose, (schema, name) in names.items() for value in (purpose, schema, name)]
        return Statement(_OBJECTS.format(rows=rows), values)

    def version(self) -> Statement:
        """The newest migration."""
        return Statement("select coalesce(max(version), 0) from changefeed.migration")

    def columns(self, table: str, /) -> Statement:
        """Names and types; of a domain, the type below it."""
        return Statement(_COLUMNS, _parts(table))

    def primary_key(self, table: str, /) -> Statement:
        """The columns in order."""
        return Statement(_PRIMARY_KEY, _parts(table))

    def maintenance(self, table: str, /) -> Statement:
        """The sequence, notifications, autovacuum and open transactions."""
        outbox, feed = f"outbox:{table}", f"feed:{table}"
        return Statement(_MAINTENANCE, (f"changefeed.{_DIALECT.quoted(outbox)}", table, table, outbox, feed))

    def waiting(self, table: str, /) -> Statement:
        """Counts and ages by shard."""
        return Statement(
            "select shard_id, count(*), extract(epoch from clock_timestamp() - min(time_hint))::float "
            f"from changefeed.{_DIALECT.quoted(f'outbox:{table}')} group by shard_id order by shard_id"
        )

    def first_unread(self, table: str, shard_id: int, cursor: bytes, /) -> Statement:
        """The first position behind a cursor."""
        return Statement(
            f"select ulid from changefeed.{_DIALECT.quoted(f'feed:{table}')} "
            "where shard_id = ? and ulid > ? order by ulid limit 1",
            (shard_id, _DIALECT.ulid(cursor)),
        )

    def feed_rows(self, table: str, shard_id: int, cursor: bytes, count: int, /) -> Statement:
        """Events with their positions."""
        return _joined(table, "feed", "ulid", (shard_id, _DIALECT.ulid(cursor)), count)

    def outbox_rows(self, table: str, shard_id: int, after: int, count: int, /) -> Statement:
        """Events that have no position yet."""
        return _joined(table, "outbox", "order_sequence", (shard_id, after), count)


def _joined(table: str, part: str, place: str, values: tuple[object, ...], count: int) -> Statement:
    events = ".".join(map(_DIALECT.quoted, _parts(table)))
    return Statement(
        f"select f.{place}, f.id, e.* from changefeed.{_DIALECT.quoted(f'{part}:{table}')} as f "
        f"left join {events} as e on e.id = f.id where f.shard_id = ? and f.{place} > ? "
        f"order by f.{place} limit {count}",
        values,
    )


def _parts(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name
