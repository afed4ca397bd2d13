-- One row: how many numbers of the sequence a session takes at a time, whether commits notify readers,
-- whether it is undecided how long positions are kept, the tables of the feed without autovacuum, and for how many
-- seconds the oldest transaction that holds back vacuum has been open: one with a snapshot or a number of its own.
-- Those of other roles are visible with the rights of pg_read_all_stats.
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
