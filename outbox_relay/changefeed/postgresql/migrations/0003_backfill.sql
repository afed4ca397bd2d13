-- Backfill of rows that were in an event table before it had a feed, for PostgreSQL 13 and later.

-- The shard of a key: the first 8 bytes of the SHA-256 of its UTF-8, an unsigned big-endian number, modulo shards.
create function changefeed.shard_of(key text, shards int) returns int
language sql immutable strict parallel safe as $body$
    select ((('x' || substr(digest, 1, 8))::bit(32)::bigint % shards * (4294967296 % shards)
             + ('x' || substr(digest, 9, 8))::bit(32)::bigint % shards) % shards)::int
    from (select encode(sha256(convert_to(key, 'UTF8')), 'hex') as digest) as hashed;
$body$;

-- Begins a backfill: lists the rows of the event table that are not on the feed, in order, in a table of its own,
-- "changefeed"."backfill:schema.Table". Returns how many; NULL if a backfill has been begun and is not finished.
--   shard_id     the shard of all rows, or NULL
--   shard_column the column whose text gives each row its shard by changefeed.shard_of, or NULL
--   shards       how many shards there are, with shard_column
--   order_by     columns of the event table; the primary key decides between equal rows
--   time_column  the column with the times for the ULIDs, or NULL for the present time
--   anyway       whether to go on where a shard has been read or written to: what is backfilled comes after that
create function changefeed.begin_backfill(table_name text, shard_id int, shard_column text, shards int,
                                          order_by text[], time_column text, anyway boolean) returns bigint
language plpgsql as $body$
declare
    outbox_table text := format('changefeed.%I', 'outbox:' || table_name);
    feed_table text := format('changefeed.%I', 'feed:' || table_name);
    state_table text := format('changefeed.%I', 'state:' || table_name);
    work_table text := format('changefeed.%I', 'backfill:' || table_name);
    events text := format('%I.%I', split_part(table_name, '.', 1),
                          substr(table_name, length(split_part(table_name, '.', 1)) + 2));
    shard text := case when shard_column is null then shard_id::text
                       else format('changefeed.shard_of(e.%I::text, %s)', shard_column, shards) end;
    hint text;
    unknown text;
    keys text;
    joined text;
    ordered text;
    used int[];
    no_shard boolean;
    total bigint;
begin
    perform from changefeed.outbox_feed f where f.table_name = begin_backfill.table_name for update;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has no feed', table_name),
            hint = 'Set it up: python -m changefeed setup-feed schema.Table.';
    end if;
    if exists (select from pg_tables where schemaname = 'changefeed'
               and tablename = 'backfill:' || begin_backfill.table_name) then
        return null;
    end if;
    select name into unknown from unnest(order_by || time_column || shard_column) as name
    where name is not null and not exists (select from pg_attribute a where a.attrelid = events::regclass
                                           and a.attname = name and a.attnum > 0 and not a.attisdropped) limit 1;
    if found then
        raise exception using errcode = 'CF001', message = format('%s has no column %s', table_name, unknown),
            hint = 'Name columns as they are spelt in the catalog, without quotes.';
    end if;
    -- A time without a zone is UTC.
    select case when time_column is null then 'clock_timestamp()'
                else format('coalesce(e.%I%s, clock_timestamp())', time_column, case a.atttypid
                            when 'timestamp'::regtype then ' at time zone ''UTC''' else '::timestamptz' end) end
    into hint
    from (select) as one left join pg_attribute a on a.attrelid = events::regclass and a.attname = time_column;
    select string_agg(format('e.%I', a.attname), ', ' order by k.place),
           string_agg(format('x.%1$I = e.%1$I', a.attname), ' and ' order by k.place)
    into keys, joined
    from pg_index i cross join unnest(i.indkey::int2[]) with ordinality as k(attnum, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = events::regclass and i.indisprimary;
    select string_agg(format('e.%I', name), ', ' order by place) || ', ' || keys into ordered
    from unnest(order_by) with ordinality as names(name, place);

    -- One snapshot: a row that a writer has put on the feed itself is in the outbox or in the feed.
    execute format('create table %s as select row_number() over (order by %s) as changefeed_position, '
                   '%s as shard_id, %s as time_hint, %s from %s e where not exists (select from %s x where %s) '
                   'and not exists (select from %s x where %s)', work_table, coalesce(ordered, keys), shard, hint,
                   keys, events, outbox_table, joined, feed_table, joined);
    execute format('select exists (select from %s where shard_id is null)', work_table) into no_shard;
    if no_shard then
        raise exception using errcode = 'CF001', message = format('%s has rows without a shard', table_name),
            hint = format('Fill the column %s, which is NULL there.', shard_column);
    end if;
    if not anyway then
        execute format('select array_agg(w.shard_id order by w.shard_id) '
                       'from (select distinct shard_id from %s) w '
                       'where exists (select from %s s where s.shard_id = w.shard_id) '
                       'or exists (select from %s o where o.shard_id = w.shard_id)',
                       work_table, state_table, outbox_table) into used;
        if used is not null then
            raise exception using errcode = 'CF001',
                message = format('these shards of %s have been read or written to: %s', table_name,
                                 array_to_string(used, ', ')),
                hint = 'Rows that are put on the feed now come after what is there, older ones too. '
                       'If that is all right, say so: --anyway.';
        end if;
    end if;
    execute format('alter table %s add primary key (changefeed_position)', work_table);
    execute format('select count(*) from %s', work_table) into total;
    return total;
end
$body$;

-- Puts the next `rows` rows on the feed: moves them to the outbox. Returns how many, and removes the table of the
-- backfill when there are none left; NULL if no backfill has been begun.
create function changefeed.continue_backfill(table_name text, rows int) returns bigint
language plpgsql as $body$
declare
    work_table text := format('changefeed.%I', 'backfill:' || table_name);
    keys text;
    moved bigint;
begin
    -- One process at a time: the order of the rows is theirs in the list.
    perform from changefeed.outbox_feed f where f.table_name = continue_backfill.table_name for update;
    -- Not to_regclass: its cache may still have the table that another process has dropped while this one waited.
    if not exists (select from pg_tables where schemaname = 'changefeed'
                   and tablename = 'backfill:' || continue_backfill.table_name) then
        return null;
    end if;
    select string_agg(format('%I', attname), ', ' order by attnum) into keys from pg_attribute
    where attrelid = work_table::regclass and attnum > 3 and not attisdropped;
    execute format('with chunk as materialized (select * from %1$s order by changefeed_position limit $1), '
                   'deleted as (delete from %1$s w using chunk c '
                   'where w.changefeed_position = c.changefeed_position), '
                   'moved as (insert into changefeed.%2$I (shard_id, time_hint, %3$s) '
                   'select shard_id, time_hint, %3$s from chunk order by changefeed_position) '
                   'select count(*) from chunk', work_table, 'outbox:' || table_name, keys) into moved using rows;
    if moved = 0 then
        execute format('drop table %s', work_table);
    end if;
    return moved;
end
$body$;

revoke all on function changefeed.begin_backfill(text, int, text, int, text[], text, boolean),
    changefeed.continue_backfill(text, int) from public;
