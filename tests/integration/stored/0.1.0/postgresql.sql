SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA changefeed;
CREATE SCHEMA outbox;
CREATE SCHEMA relay;
CREATE FUNCTION changefeed.become_sweeper(sweep_group integer, wait_milliseconds integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    -- A sweeper whose machine has gone without a word is noticed after half a minute, instead of after two hours.
    perform set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
            set_config('tcp_keepalives_count', '4', false),
            set_config('lock_timeout', greatest(wait_milliseconds, 1) || 'ms', true);
    perform pg_advisory_lock(x'6366'::int, sweep_group);
    return true;
exception when lock_not_available then
    return false;
end
$$;
CREATE FUNCTION changefeed.begin_backfill(table_name text, shard_id integer, shard_column text, shards integer, order_by text[], time_column text, anyway boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'off'
    SET jit TO 'off'
    AS $_$
declare
    outbox_table text := format('changefeed.%I', 'outbox:' || table_name);
    feed_table text := format('changefeed.%I', 'feed:' || table_name);
    state_table text := format('changefeed.%I', 'state:' || table_name);
    work_table text := format('changefeed.%I', 'backfill:' || table_name);
    events text := changefeed.event_table(table_name);
    shard text := case when shard_column is null then shard_id::text
                       else format('changefeed.shard_of(e.%I::text, %s)', shard_column, shards) end;
    hint text;
    unknown text;
    keys text;
    joined text;
    ordered text;
    used int[];
    no_shard boolean;
    low_water uuid;
    unproved bigint;
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
    select string_agg('e.' || k.quoted, ', ' order by k.place),
           string_agg(format('x.%1$s %2$s e.%1$s', k.quoted, k.equals), ' and ' order by k.place)
    into keys, joined from changefeed.key_column(events::regclass) k;
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
    -- After a prune, a row that is not on the feed may have been there. What was deleted has no trace but the mark, and
    -- an event's own time is no proof: its position may be of a later one.
    select max(l.ulid::text)::uuid into low_water from changefeed.low_water l
    where l.table_name = begin_backfill.table_name;
    if low_water is not null then
        execute format('select count(*) from %s', work_table) into unproved;
        if unproved > 0 then
            raise exception using errcode = 'CF001',
                message = format('positions of %s have been deleted, and %s rows cannot be proved never to have been on '
                                 'the feed', table_name, unproved),
                hint = 'They would be published a second time, so --anyway does not change this. Insert those that you '
                       'know to be new into the outbox yourself.';
        end if;
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
$_$;
CREATE FUNCTION changefeed.change_channel(feed_id integer, shard integer) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    channel text;
begin
    select case when s.longpoll = 1 then 'changefeed:change:' || s.feed_id || ':' || s.shard end into channel
    from changefeed.shard s where s.feed_id = $1 and s.shard = $2;
    if not found then
        raise exception using errcode = 'CF001', message = format('the feed %s has no shard %s', $1, $2),
            hint = 'Insert it into changefeed.shard, or correct feed_id and shard.';
    end if;
    return channel;
end
$_$;
CREATE FUNCTION changefeed.check_claim() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    administers boolean := pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage');
    other text;
begin
    if not administers then
        execute format('select c.role_name from %I.%I c where c.consumer = any ($1) and not '
                       'coalesce(pg_has_role(to_regrole(quote_ident(c.role_name))::oid, ''member''), true) limit 1',
                       tg_table_schema, tg_table_name)
        into other using case when tg_op = 'UPDATE' then array[old.consumer, new.consumer] else array[new.consumer] end;
        if other is not null then
            raise exception using errcode = 'CF006',
                message = format('the consumer %s belongs to the role %s, and not to %s', new.consumer, other,
                                 current_user),
                hint = 'Connect as that role or a member of it, or choose another name for the consumer.';
        end if;
        new.role_name := null;
    end if;
    if tg_op = 'UPDATE' then
        new.role_name := coalesce(new.role_name, old.role_name);
    end if;
    new.role_name := coalesce(new.role_name, current_user);
    return new;
end
$_$;
CREATE FUNCTION changefeed.check_cursor(last_read uuid, last_given uuid) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if last_read > coalesce(last_given, '00000000-0000-0000-0000-000000000000') then
        raise exception using errcode = 'CF002',
            message = format('the cursor %s is ahead of the last position given in this shard, %s',
                             last_read, coalesce(last_given::text, 'none')),
            hint = 'It is of another shard or feed, or the database was restored: read again from the position of '
                   'the restored consumer, or from the beginning.';
    end if;
end
$$;
CREATE FUNCTION changefeed.check_low_water(table_name text, shard_id integer, last_read uuid) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    low_water uuid;
begin
    if last_read = '00000000-0000-0000-0000-000000000000' then
        return;
    end if;
    select l.ulid into low_water from changefeed.low_water l
    where l.table_name = check_low_water.table_name and l.shard_id = check_low_water.shard_id;
    if last_read < low_water then
        raise exception using errcode = 'CF005',
            message = format('the cursor %s of shard %s is behind the low-water mark %s of %s: retention has deleted '
                             'positions that it has not read', last_read, shard_id, low_water, table_name),
            hint = 'Rebuild the consumer from the event table, or read what is left from the beginning.';
    end if;
end
$$;
CREATE FUNCTION changefeed.check_read(shard_id integer, last_read uuid, pagesize integer) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if shard_id is null or last_read is null or pagesize is null or pagesize not between 1 and 1000 then
        raise exception using errcode = 'CF001',
            message = format('shard_id is %s, cursor is %s and pagesize is %s: none may be NULL',
                             coalesce(shard_id::text, 'NULL'), coalesce(last_read::text, 'NULL'),
                             coalesce(pagesize::text, 'NULL')),
            hint = 'Start with the cursor 00000000-0000-0000-0000-000000000000, and set a pagesize from 1 to 1000.';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'CF003',
            message = format('the isolation level is %s', current_setting('transaction_isolation')),
            hint = 'Read in a transaction of its own with the isolation level READ COMMITTED.';
    end if;
end
$$;
CREATE FUNCTION changefeed.continue_backfill(table_name text, rows integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
                   'deleted as (delete from %1$s w '
                   'where w.changefeed_position = any (array(select c.changefeed_position from chunk c))), '
                   'moved as (insert into changefeed.%2$I (shard_id, time_hint, %3$s) '
                   'select shard_id, time_hint, %3$s from chunk order by changefeed_position) '
                   'select count(*) from chunk', work_table, 'outbox:' || table_name, keys) into moved using rows;
    if moved = 0 then
        execute format('drop table %s', work_table);
    end if;
    return moved;
end
$_$;
CREATE FUNCTION changefeed.create_functions(table_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    events text := changefeed.event_table(table_name);
    outbox_table text := format('changefeed.%I', 'outbox:' || table_name);
    feed_table text := format('changefeed.%I', 'feed:' || table_name);
    state_table text := format('changefeed.%I', 'state:' || table_name);
    read_feed text := format('changefeed.%I', 'read_feed:' || table_name);
    has_news text := format('changefeed.%I', 'has_news:' || table_name);
    read_events text := format('changefeed.%I', 'read_events:' || table_name);
    retain text := format('changefeed.%I', 'retain:' || table_name);
    settings constant text := 'set search_path = pg_catalog, pg_temp set enable_seqscan = off '
                              'set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off '
                              'set jit = off set plan_cache_mode = force_generic_plan';
    parameters text;
    names text;
    first_name text;
    of_feed text;
    joined text;
    pairs text;
begin
    select string_agg(k.quoted || ' ' || k.written_type, ', ' order by k.place),
           string_agg(k.quoted, ', ' order by k.place),
           (array_agg(k.quoted order by k.place))[1],
           string_agg('f.' || k.quoted, ', ' order by k.place),
           string_agg(format('changefeed_event.%1$s %2$s f.%1$s', k.quoted, k.equals), ' and ' order by k.place),
           string_agg(format('%L, f.%s', k.name, k.quoted), ', ' order by k.place)
    into parameters, names, first_name, of_feed, joined, pairs
    from changefeed.key_column(events::regclass) k;
    execute format('create or replace function %s(shard_id int, "cursor" uuid, pagesize int default 100) '
                   'returns table (ulid uuid, %s) language plpgsql security definer %s set lock_timeout = ''10s'' as %L',
                   read_feed, parameters, settings, format($read$
#variable_conflict use_column
<<reading>>
declare
    last_given uuid;
    last_of_feed uuid;
    waiting boolean;
    last_ms bigint;
    last_random bigint;
    last_counter bigint;
    now_ms bigint;
begin
    perform changefeed.check_read($1, $2, $3);
    return query select f.ulid, %2$s from %3$s f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        perform changefeed.check_low_water(%6$L, $1, $2);
        return;
    end if;
    -- An idle poll ends here, without a lock: one snapshot has nothing new, neither in the outbox nor in the feed. With
    -- a snapshot for each, what another reader moves in between would be in none, and an empty page not the head. The
    -- feed's last position also counts, since a feed may have been filled by hand.
    select (select f.ulid from %3$s f where f.shard_id = $1 order by f.ulid desc limit 1),
           (select s.ulid from %4$s s where s.shard_id = $1),
           exists (select from %5$s o where o.shard_id = $1)
    into last_of_feed, last_given, waiting;
    last_given := greatest(last_given, last_of_feed);
    perform changefeed.check_cursor($2, last_given);
    perform changefeed.check_low_water(%6$L, $1, $2);
    if not waiting and coalesce(last_of_feed <= $2, true) then
        return;
    end if;
    -- One reader at a time numbers a shard; every other waits here, and finds what this one has numbered.
    insert into %4$s (shard_id, ulid) values ($1, '00000000-0000-0000-0000-000000000000') on conflict do nothing;
    select s.ulid into strict last_given from %4$s s where s.shard_id = $1 for update;
    return query select f.ulid, %2$s from %3$s f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        perform changefeed.check_low_water(%6$L, $1, $2);
        return;
    end if;
    if exists (select from pg_sequence s
               where s.seqrelid = pg_get_serial_sequence(%5$L, 'order_sequence')::regclass and s.seqcache <> 1) then
        raise exception using errcode = 'CF004', message = %7$L,
            hint = 'Numbers of a cached sequence do not follow the order of commits: ALTER SEQUENCE … CACHE 1.';
    end if;
    select f.ulid into last_of_feed from %3$s f where f.shard_id = $1 order by f.ulid desc limit 1;
    last_given := greatest(last_given, last_of_feed);
    last_ms := changefeed.ulid_part(last_given, 1, 12);
    last_random := changefeed.ulid_part(last_given, 13, 10);
    last_counter := changefeed.ulid_part(last_given, 23, 10);
    if last_counter + $3 >= 1::bigint << 40 then
        last_ms := last_ms + 1;
        last_random := changefeed.random_bits(40);
        last_counter := changefeed.random_bits(39);
    end if;
    now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
    -- The rows come from one statement's snapshot: where it has a transaction, it has every one that was committed
    -- before that one began. Their own numbers were drawn within transactions, so they order what it has.
    with taken as materialized (
        select * from %5$s o where o.shard_id = $1 order by o.order_sequence limit $3
    ), timed as materialized (
        select *, greatest(reading.last_ms, max(least(floor(extract(epoch from time_hint) * 1000), reading.now_ms))
                                            over (order by order_sequence))::bigint as changefeed_ms
        from taken
    ), bases as materialized (
        select ms, case when ms = last_ms then last_random else changefeed.random_bits(40) end as random,
               case when ms = last_ms then last_counter else changefeed.random_bits(39) end as counter
        from (select distinct changefeed_ms as ms from timed) as times
    ), numbered as materialized (
        select changefeed.ulid(b.ms, b.random,
                               b.counter + row_number() over (partition by b.ms order by t.order_sequence)) as ulid,
               t.*
        from timed t join bases b on b.ms = t.changefeed_ms
    ), deleted as (
        -- By an array, not by a join, which may be carried out as one of the page with the whole backlog.
        delete from %5$s o
        where o.shard_id = $1 and o.order_sequence = any (array(select n.order_sequence from numbered n))
    ), stored as (
        update %4$s s set ulid = n.ulid
        from (select numbered.ulid from numbered order by order_sequence desc limit 1) as n where s.shard_id = $1
    )
    insert into %3$s (shard_id, ulid, %1$s) select $1, n.ulid, %8$s from numbered n order by n.ulid;
    return query select f.ulid, %2$s from %3$s f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    -- While this one waited for its turn, others may have numbered and deleted.
    perform changefeed.check_low_water(%6$L, $1, $2);
end
$read$, names, of_feed, feed_table, state_table, outbox_table, table_name,
        format('the sequence of %s has a cache', outbox_table), replace(of_feed, 'f.', 'n.')));
    -- A join on read_feed in one statement would look for the events in a snapshot taken before read_feed began, and
    -- miss those committed since. Here the join is a statement of its own.
    --   maxbytes  NULL, or the maximum size of the events' text in bytes. The page ends before it is exceeded, but
    --             has one event at least.
    execute format('create or replace function %s(shard_id int, "cursor" uuid, pagesize int, maxbytes bigint) '
                   'returns table (ulid uuid, missing text, event %s) language plpgsql %s as %L',
                   read_events, events, settings, format($read$
#variable_conflict use_column
declare
    last_of_page uuid;
    last_read uuid;
    bytes_left bigint := $4;
    sized record;
begin
    select r.ulid into last_of_page from %1$s($1, $2, $3) r order by r.ulid desc limit 1;
    if $4 is not null then
        -- Row by row: nothing but a few sizes is held, however large the events are.
        for sized in
            select f.ulid, octet_length(changefeed_event::text) as bytes
            from %2$s f left join %3$s changefeed_event on %4$s
            where f.shard_id = $1 and f.ulid > $2 and f.ulid <= last_of_page order by f.ulid
        loop
            bytes_left := bytes_left - coalesce(sized.bytes, 0);
            exit when bytes_left < 0 and last_read is not null;
            last_read := sized.ulid;
            exit when bytes_left < 0;
        end loop;
        last_of_page := coalesce(last_read, last_of_page);
    end if;
    return query
        select f.ulid, case when changefeed_event.%5$s is null then jsonb_build_object(%6$s)::text end,
               changefeed_event
        from %2$s f left join %3$s changefeed_event on %4$s
        where f.shard_id = $1 and f.ulid > $2 and f.ulid <= last_of_page order by f.ulid;
    -- What was read in two statements may have been deleted in between.
    perform changefeed.check_low_water(%7$L, $1, $2);
end
$read$, read_feed, feed_table, events, joined, first_name, pairs, table_name));
    execute format('create or replace function %s(shard_id int, "cursor" uuid, pagesize int default 100) '
                   'returns table (ulid uuid, missing text, event %s) language sql as %L',
                   read_events, events, format('select * from %s($1, $2, $3, null)', read_events));
    -- Whether a read may find something, or would refuse the cursor: without a lock, so a reader that waits can ask
    -- often.
    execute format('create or replace function %s(shard_id int, "cursor" uuid) returns boolean '
                   'language plpgsql stable security definer %s as %L', has_news, settings, format($read$
declare
    last_of_feed uuid := (select f.ulid from %1$s f where f.shard_id = $1 order by f.ulid desc limit 1);
begin
    return coalesce(last_of_feed > $2, false)
        or exists (select from %2$s o where o.shard_id = $1)
        or $2 > coalesce(greatest(last_of_feed, (select s.ulid from %3$s s where s.shard_id = $1)),
                         '00000000-0000-0000-0000-000000000000')
        or $2 <> '00000000-0000-0000-0000-000000000000'
           and exists (select from changefeed.low_water l
                       where l.table_name = %4$L and l.shard_id = $1 and l.ulid > $2);
end
$read$, feed_table, outbox_table, state_table, table_name));
    -- Deletes what the feed's policy allows, at most 1000 rows of each shard, and returns how many. Any reader may call
    -- it: it has no parameters, and so deletes nothing else. One process at a time; 0 to all others.
    execute format('create or replace function %s() returns bigint language plpgsql security definer %s as %L',
                   retain, settings, format($read$
declare
    kept text;
    before uuid;
    shard int;
    total bigint := 0;
begin
    select f.keep into kept from changefeed.outbox_feed f where f.table_name = %1$L for update skip locked;
    if kept is null or kept = 'forever' then
        return 0;
    end if;
    before := changefeed.ulid(
        greatest(floor(extract(epoch from clock_timestamp() - kept::interval) * 1000), 0)::bigint, 0, 0);
    select f.shard_id into shard from %2$s f order by f.shard_id, f.ulid limit 1;
    while shard is not null loop
        total := total + (select p.deleted from changefeed.prune_shard(%1$L, shard, before, 1000) p);
        select (select f.shard_id from %2$s f where f.shard_id > shard order by f.shard_id, f.ulid limit 1) into shard;
    end loop;
    return total;
end
$read$, table_name, feed_table));
    execute format('revoke all on function %s(int, uuid, int), %s(int, uuid, int), %s(int, uuid, int, bigint), '
                   '%s(int, uuid), %s() from public', read_feed, read_events, read_events, has_news, retain);
end
$_$;
CREATE FUNCTION changefeed.drop_feed(table_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    schema_name text := format('%I', split_part(table_name, '.', 1));
    events text := changefeed.event_table(table_name);
    role_name text;
begin
    delete from changefeed.outbox_feed f where f.table_name = drop_feed.table_name;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has no feed', table_name),
            hint = 'See the feeds there are in changefeed.outbox_feed.';
    end if;
    -- Where the event table was dropped with cascade, read_events has gone with it.
    execute format('drop function if exists changefeed.%1$I(int, uuid, int), changefeed.%1$I(int, uuid, int, bigint), '
                   'changefeed.%2$I(int, uuid, int), changefeed.%3$I(int, uuid), changefeed.%4$I()',
                   'read_events:' || table_name, 'read_feed:' || table_name, 'has_news:' || table_name,
                   'retain:' || table_name);
    execute format('drop table changefeed.%I, changefeed.%I, changefeed.%I, changefeed.%I', 'outbox:' || table_name,
                   'feed:' || table_name, 'state:' || table_name, 'claim:' || table_name);
    execute format('drop table if exists changefeed.%I', 'backfill:' || table_name);
    foreach role_name in array array['changefeed.writers:' || table_name, 'changefeed.readers:' || table_name] loop
        if exists (select from pg_roles where rolname = role_name) then
            -- What setup_feed has granted, and nothing else: DROP OWNED would drop the role's own tables.
            execute format('revoke usage on schema changefeed from %I', role_name);
            execute format('revoke select on changefeed.outbox_feed, changefeed.low_water from %I', role_name);
            if to_regclass(events) is not null then
                execute format('revoke select on %s from %I', events, role_name);
            end if;
            if to_regnamespace(schema_name) is not null then
                execute format('revoke usage on schema %s from %I', schema_name, role_name);
            end if;
            begin
                execute format('drop role %I', role_name);
            exception when dependent_objects_still_exist then
                raise notice 'the role % stays: it has other rights or objects, here or in another database',
                    role_name;
            end;
        end if;
    end loop;
end
$_$;
CREATE FUNCTION changefeed.event_table(table_name text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select format('%I.%I', split_part(table_name, '.', 1), substr(table_name, length(split_part(table_name, '.', 1)) + 2));
$$;
CREATE FUNCTION changefeed.grant_functions(table_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    execute format('grant execute on function changefeed.%1$I(int, uuid, int), changefeed.%2$I(int, uuid, int), '
                   'changefeed.%2$I(int, uuid, int, bigint), changefeed.%3$I(int, uuid), changefeed.%4$I() to %5$I',
                   'read_feed:' || table_name, 'read_events:' || table_name, 'has_news:' || table_name,
                   'retain:' || table_name, 'changefeed.readers:' || table_name);
    execute format('grant select on changefeed.low_water to %I', 'changefeed.readers:' || table_name);
end
$_$;
CREATE FUNCTION changefeed.has_changes(feed_id integer, shard integer, cursor bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
begin
    return exists (select from changefeed.change c
                   where c.feed_id = $1 and c.shard = $2 and c.change_sequence_number > $3
                   order by c.change_sequence_number limit 1);
end
$_$;
CREATE FUNCTION changefeed."has_news:outbox.domain_event"(shard_id integer, cursor uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
declare
    last_of_feed uuid := (select f.ulid from changefeed."feed:outbox.domain_event" f where f.shard_id = $1 order by f.ulid desc limit 1);
begin
    return coalesce(last_of_feed > $2, false)
        or exists (select from changefeed."outbox:outbox.domain_event" o where o.shard_id = $1)
        or $2 > coalesce(greatest(last_of_feed, (select s.ulid from changefeed."state:outbox.domain_event" s where s.shard_id = $1)),
                         '00000000-0000-0000-0000-000000000000')
        or $2 <> '00000000-0000-0000-0000-000000000000'
           and exists (select from changefeed.low_water l
                       where l.table_name = 'outbox.domain_event' and l.shard_id = $1 and l.ulid > $2);
end
$_$;
CREATE FUNCTION changefeed.key_column(events regclass) RETURNS TABLE(place bigint, name name, quoted text, written_type text, definition text, equals text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select k.place, a.attname, quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
           format('%I %s%s not null', a.attname, format_type(a.atttypid, a.atttypmod),
                  case when a.attcollation <> t.typcollation and a.attcollation <> 0
                       then format(' collate %s', a.attcollation::regcollation) else '' end),
           coalesce(format('operator(%I.%s)', o.oprnamespace::regnamespace::name, o.oprname), '=')
    from pg_index i
    cross join unnest(i.indkey::int2[]) with ordinality as k(attnum, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    join pg_type t on t.oid = a.atttypid
    left join pg_opclass c on c.oid = (i.indclass::oid[])[k.place - 1]
    left join pg_amop p on p.amopfamily = c.opcfamily and p.amoplefttype = c.opcintype
        and p.amoprighttype = c.opcintype and p.amopstrategy = 3
        and p.amopmethod = (select m.oid from pg_am m where m.amname = 'btree')
    left join pg_operator o on o.oid = p.amopopr
    where i.indrelid = events and i.indisprimary;
$$;
CREATE FUNCTION changefeed.notify_readers() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform pg_notify(tg_argv[0], added.shard_id::text) from (select distinct shard_id from inserted) as added;
    return null;
end
$$;
CREATE FUNCTION changefeed.notify_sweepers() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform pg_notify('changefeed:sweep:' || written.sweep_group, '')
    from (select distinct s.sweep_group from inserted i
          join changefeed.shard s on s.feed_id = i.feed_id and s.shard = i.shard where s.longpoll = 1) as written;
    return null;
end
$$;
CREATE FUNCTION changefeed.prune_shard(table_name text, shard_id integer, before uuid, rows integer, OUT deleted bigint, OUT held_by text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
declare
    feed_table text := format('changefeed.%I', 'feed:' || table_name);
    state_table text := format('changefeed.%I', 'state:' || table_name);
    claim_table text := format('changefeed.%I', 'claim:' || table_name);
    start constant uuid := '00000000-0000-0000-0000-000000000000';
    low_water uuid;
    read_up_to uuid;
    last_deleted uuid;
    passed boolean;
    more boolean;
begin
    -- Not while a backfill lists the rows that are not on the feed.
    perform from changefeed.outbox_feed f where f.table_name = prune_shard.table_name for update;
    select l.ulid into low_water from changefeed.low_water l
    where l.table_name = prune_shard.table_name and l.shard_id = prune_shard.shard_id;
    low_water := coalesce(low_water, start);
    -- A consumer that has claims in other shards only has read nothing of this one.
    execute format('select a.consumer, coalesce(c.last_ulid, $2) from (select distinct consumer from %1$s) a '
                   'left join %1$s c on c.consumer = a.consumer and c.shard_id = $1 '
                   'order by 2, 1 limit 1', claim_table) into held_by, read_up_to using shard_id, start;
    -- From the low-water mark on: rows that were deleted just now are still in the index.
    execute format('with page as materialized ('
                   'select f.ulid from %1$s f where f.shard_id = $1 and f.ulid > $2 and f.ulid < $3 '
                   'and ($4 is null or f.ulid <= $4) order by f.ulid limit $5), '
                   'gone as (delete from %1$s f where f.shard_id = $1 '
                   'and f.ulid = any (array(select p.ulid from page p))) '
                   'select count(*), (array_agg(p.ulid order by p.ulid desc))[1] from page p', feed_table)
    into deleted, last_deleted using shard_id, low_water, before, read_up_to, rows;
    if deleted > 0 then
        insert into changefeed.low_water as l (table_name, shard_id, ulid)
        values (prune_shard.table_name, prune_shard.shard_id, last_deleted)
        on conflict on constraint low_water_pkey do update set ulid = excluded.ulid;
        -- A feed may have been filled by hand, without a last position given: with its rows gone, cursors behind them
        -- would be refused, and later events get positions before them.
        execute format('insert into %1$s as s (shard_id, ulid) select $1, $2 '
                       'where not exists (select from %1$s g where g.shard_id = $1 and g.ulid >= $2) '
                       'on conflict (shard_id) do update set ulid = greatest(s.ulid, excluded.ulid)', state_table)
        using shard_id, last_deleted;
    end if;
    execute format('select exists (select from %s f where f.shard_id = $1 and f.ulid > $2 and f.ulid < $3)', feed_table)
    into more using shard_id, coalesce(last_deleted, low_water), before;
    if not more or deleted = rows then
        held_by := null;
    end if;
end
$_$;
CREATE FUNCTION changefeed.random_bits(bits integer) RETURNS bigint
    LANGUAGE sql PARALLEL SAFE
    AS $$
    select ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 21, 10))::bit(40)::bigint
           & ((1::bigint << bits) - 1);
$$;
CREATE FUNCTION changefeed.read_changes(feed_id integer, shard integer, cursor bigint, pagesize integer DEFAULT 100) RETURNS TABLE(change_id bigint, change_sequence_number bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
#variable_conflict use_column
declare
    last_given bigint;
begin
    if $3 is null or $4 is null or $4 not between 1 and 1000 then
        raise exception using errcode = 'CF001',
            message = format('cursor is %s and pagesize is %s: neither may be NULL', coalesce($3::text, 'NULL'),
                             coalesce($4::text, 'NULL')),
            hint = 'Start with the cursor 0, and set a pagesize from 1 to 1000.';
    end if;
    return query select c.change_id, c.change_sequence_number from changefeed.change c
        where c.feed_id = $1 and c.shard = $2 and c.change_sequence_number > $3
        order by c.change_sequence_number limit $4;
    if found then
        return;
    end if;
    -- Raises where there is no such shard.
    perform changefeed.change_channel($1, $2);
    select s.last_change_sequence_number into last_given from changefeed.shard s
    where s.feed_id = $1 and s.shard = $2;
    if $3 > last_given then
        raise exception using errcode = 'CF002',
            message = format('the cursor %s is ahead of the last number given in this shard, %s', $3, last_given),
            hint = 'It is of another shard or feed, or the database was restored: read again from the position of '
                   'the restored consumer, or from the beginning.';
    end if;
end
$_$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE outbox.domain_event (
    id text NOT NULL,
    partition_key text NOT NULL,
    data jsonb NOT NULL
);
CREATE FUNCTION changefeed."read_events:outbox.domain_event"(shard_id integer, cursor uuid, pagesize integer DEFAULT 100) RETURNS TABLE(ulid uuid, missing text, event outbox.domain_event)
    LANGUAGE sql
    AS $_$select * from changefeed."read_events:outbox.domain_event"($1, $2, $3, null)$_$;
CREATE FUNCTION changefeed."read_events:outbox.domain_event"(shard_id integer, cursor uuid, pagesize integer, maxbytes bigint) RETURNS TABLE(ulid uuid, missing text, event outbox.domain_event)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
#variable_conflict use_column
declare
    last_of_page uuid;
    last_read uuid;
    bytes_left bigint := $4;
    sized record;
begin
    select r.ulid into last_of_page from changefeed."read_feed:outbox.domain_event"($1, $2, $3) r order by r.ulid desc limit 1;
    if $4 is not null then
        -- Row by row: nothing but a few sizes is held, however large the events are.
        for sized in
            select f.ulid, octet_length(changefeed_event::text) as bytes
            from changefeed."feed:outbox.domain_event" f left join outbox.domain_event changefeed_event on changefeed_event.id operator(pg_catalog.=) f.id
            where f.shard_id = $1 and f.ulid > $2 and f.ulid <= last_of_page order by f.ulid
        loop
            bytes_left := bytes_left - coalesce(sized.bytes, 0);
            exit when bytes_left < 0 and last_read is not null;
            last_read := sized.ulid;
            exit when bytes_left < 0;
        end loop;
        last_of_page := coalesce(last_read, last_of_page);
    end if;
    return query
        select f.ulid, case when changefeed_event.id is null then jsonb_build_object('id', f.id)::text end,
               changefeed_event
        from changefeed."feed:outbox.domain_event" f left join outbox.domain_event changefeed_event on changefeed_event.id operator(pg_catalog.=) f.id
        where f.shard_id = $1 and f.ulid > $2 and f.ulid <= last_of_page order by f.ulid;
    -- What was read in two statements may have been deleted in between.
    perform changefeed.check_low_water('outbox.domain_event', $1, $2);
end
$_$;
CREATE FUNCTION changefeed."read_feed:outbox.domain_event"(shard_id integer, cursor uuid, pagesize integer DEFAULT 100) RETURNS TABLE(ulid uuid, id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '10s'
    AS $_$
#variable_conflict use_column
<<reading>>
declare
    last_given uuid;
    last_of_feed uuid;
    waiting boolean;
    last_ms bigint;
    last_random bigint;
    last_counter bigint;
    now_ms bigint;
begin
    perform changefeed.check_read($1, $2, $3);
    return query select f.ulid, f.id from changefeed."feed:outbox.domain_event" f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        perform changefeed.check_low_water('outbox.domain_event', $1, $2);
        return;
    end if;
    -- An idle poll ends here, without a lock: one snapshot has nothing new, neither in the outbox nor in the feed. With
    -- a snapshot for each, what another reader moves in between would be in none, and an empty page not the head. The
    -- feed's last position also counts, since a feed may have been filled by hand.
    select (select f.ulid from changefeed."feed:outbox.domain_event" f where f.shard_id = $1 order by f.ulid desc limit 1),
           (select s.ulid from changefeed."state:outbox.domain_event" s where s.shard_id = $1),
           exists (select from changefeed."outbox:outbox.domain_event" o where o.shard_id = $1)
    into last_of_feed, last_given, waiting;
    last_given := greatest(last_given, last_of_feed);
    perform changefeed.check_cursor($2, last_given);
    perform changefeed.check_low_water('outbox.domain_event', $1, $2);
    if not waiting and coalesce(last_of_feed <= $2, true) then
        return;
    end if;
    -- One reader at a time numbers a shard; every other waits here, and finds what this one has numbered.
    insert into changefeed."state:outbox.domain_event" (shard_id, ulid) values ($1, '00000000-0000-0000-0000-000000000000') on conflict do nothing;
    select s.ulid into strict last_given from changefeed."state:outbox.domain_event" s where s.shard_id = $1 for update;
    return query select f.ulid, f.id from changefeed."feed:outbox.domain_event" f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        perform changefeed.check_low_water('outbox.domain_event', $1, $2);
        return;
    end if;
    if exists (select from pg_sequence s
               where s.seqrelid = pg_get_serial_sequence('changefeed."outbox:outbox.domain_event"', 'order_sequence')::regclass and s.seqcache <> 1) then
        raise exception using errcode = 'CF004', message = 'the sequence of changefeed."outbox:outbox.domain_event" has a cache',
            hint = 'Numbers of a cached sequence do not follow the order of commits: ALTER SEQUENCE … CACHE 1.';
    end if;
    select f.ulid into last_of_feed from changefeed."feed:outbox.domain_event" f where f.shard_id = $1 order by f.ulid desc limit 1;
    last_given := greatest(last_given, last_of_feed);
    last_ms := changefeed.ulid_part(last_given, 1, 12);
    last_random := changefeed.ulid_part(last_given, 13, 10);
    last_counter := changefeed.ulid_part(last_given, 23, 10);
    if last_counter + $3 >= 1::bigint << 40 then
        last_ms := last_ms + 1;
        last_random := changefeed.random_bits(40);
        last_counter := changefeed.random_bits(39);
    end if;
    now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
    -- The rows come from one statement's snapshot: where it has a transaction, it has every one that was committed
    -- before that one began. Their own numbers were drawn within transactions, so they order what it has.
    with taken as materialized (
        select * from changefeed."outbox:outbox.domain_event" o where o.shard_id = $1 order by o.order_sequence limit $3
    ), timed as materialized (
        select *, greatest(reading.last_ms, max(least(floor(extract(epoch from time_hint) * 1000), reading.now_ms))
                                            over (order by order_sequence))::bigint as changefeed_ms
        from taken
    ), bases as materialized (
        select ms, case when ms = last_ms then last_random else changefeed.random_bits(40) end as random,
               case when ms = last_ms then last_counter else changefeed.random_bits(39) end as counter
        from (select distinct changefeed_ms as ms from timed) as times
    ), numbered as materialized (
        select changefeed.ulid(b.ms, b.random,
                               b.counter + row_number() over (partition by b.ms order by t.order_sequence)) as ulid,
               t.*
        from timed t join bases b on b.ms = t.changefeed_ms
    ), deleted as (
        -- By an array, not by a join, which may be carried out as one of the page with the whole backlog.
        delete from changefeed."outbox:outbox.domain_event" o
        where o.shard_id = $1 and o.order_sequence = any (array(select n.order_sequence from numbered n))
    ), stored as (
        update changefeed."state:outbox.domain_event" s set ulid = n.ulid
        from (select numbered.ulid from numbered order by order_sequence desc limit 1) as n where s.shard_id = $1
    )
    insert into changefeed."feed:outbox.domain_event" (shard_id, ulid, id) select $1, n.ulid, n.id from numbered n order by n.ulid;
    return query select f.ulid, f.id from changefeed."feed:outbox.domain_event" f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    -- While this one waited for its turn, others may have numbered and deleted.
    perform changefeed.check_low_water('outbox.domain_event', $1, $2);
end
$_$;
CREATE FUNCTION changefeed.resign_sweeper(sweep_group integer) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select pg_advisory_unlock(x'6366'::int, sweep_group);
$$;
CREATE FUNCTION changefeed."retain:outbox.domain_event"() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    kept text;
    before uuid;
    shard int;
    total bigint := 0;
begin
    select f.keep into kept from changefeed.outbox_feed f where f.table_name = 'outbox.domain_event' for update skip locked;
    if kept is null or kept = 'forever' then
        return 0;
    end if;
    before := changefeed.ulid(
        greatest(floor(extract(epoch from clock_timestamp() - kept::interval) * 1000), 0)::bigint, 0, 0);
    select f.shard_id into shard from changefeed."feed:outbox.domain_event" f order by f.shard_id, f.ulid limit 1;
    while shard is not null loop
        total := total + (select p.deleted from changefeed.prune_shard('outbox.domain_event', shard, before, 1000) p);
        select (select f.shard_id from changefeed."feed:outbox.domain_event" f where f.shard_id > shard order by f.shard_id, f.ulid limit 1) into shard;
    end loop;
    return total;
end
$$;
CREATE FUNCTION changefeed.set_keep(table_name text, keep text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    if keep <> 'forever' and keep !~ '^[1-9][0-9]{0,4}[dh]$' then
        raise exception using errcode = 'CF001', message = format('keep is %s', keep),
            hint = 'Set it to a number of days or hours, such as 30d or 12h, or to forever.';
    end if;
    update changefeed.outbox_feed f set keep = set_keep.keep where f.table_name = set_keep.table_name;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has no feed', table_name),
            hint = 'Set it up: python -m changefeed setup-feed schema.Table.';
    end if;
end
$_$;
CREATE FUNCTION changefeed.set_notify(table_name text, notify boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    outbox_table text := format('changefeed.%I', 'outbox:' || table_name);
    channel_name text := case when notify then 'changefeed:' || left(md5(table_name), 16) end;
begin
    update changefeed.outbox_feed f set channel = channel_name where f.table_name = set_notify.table_name;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has no feed', table_name),
            hint = 'Set it up: python -m changefeed setup-feed schema.Table.';
    end if;
    execute format('drop trigger if exists notify_readers on %s', outbox_table);
    if notify then
        execute format('create trigger notify_readers after insert on %s referencing new table as inserted '
                       'for each statement execute function changefeed.notify_readers(%L)', outbox_table, channel_name);
    end if;
end
$$;
CREATE FUNCTION changefeed.setup_feed(table_name text, outbox boolean DEFAULT true, notify boolean DEFAULT false, roles boolean DEFAULT true, keep text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    schema_part text := split_part(table_name, '.', 1);
    table_part text := substr(table_name, length(split_part(table_name, '.', 1)) + 2);
    events text := changefeed.event_table(table_name);
    events_oid oid := to_regclass(events);
    outbox_table text := format('changefeed.%I', 'outbox:' || table_name);
    feed_table text := format('changefeed.%I', 'feed:' || table_name);
    state_table text := format('changefeed.%I', 'state:' || table_name);
    claim_table text := format('changefeed.%I', 'claim:' || table_name);
    writers text := format('%I', 'changefeed.writers:' || table_name);
    readers text := format('%I', 'changefeed.readers:' || table_name);
    definitions text;
    names text;
    taken text;
    role_name text;
begin
    if outbox is not true then
        raise exception using errcode = 'CF001', message = 'a feed without an outbox is not supported',
            hint = 'Call changefeed.setup_feed with outbox => true.';
    end if;
    if events_oid is null or schema_part = '' or table_part = '' then
        raise exception using errcode = 'CF001', message = format('there is no table %s', table_name),
            hint = 'Name it as schema.Table, with the capital letters of the catalog and without quotes.';
    end if;
    if octet_length(table_name) > 44 then
        raise exception using errcode = 'CF001',
            message = format('the name %s has %s bytes, and names made of it would be cut', table_name,
                             octet_length(table_name)),
            hint = 'Use a schema and a table whose names have 44 bytes at most, the dot included.';
    end if;
    select string_agg(k.definition, ', ' order by k.place), string_agg(k.quoted, ', ' order by k.place),
           max(k.name::text) filter (where k.name in ('shard_id', 'order_sequence', 'time_hint', 'ulid', 'cursor',
                                                      'pagesize', 'maxbytes'))
    into definitions, names, taken
    from changefeed.key_column(events_oid) k;
    if definitions is null then
        raise exception using errcode = 'CF001', message = format('the table %s has no primary key', table_name),
            hint = 'Add one: outbox and feed refer to events by it.';
    end if;
    if taken is not null then
        raise exception using errcode = 'CF001',
            message = format('the primary key of %s has a column that the feed needs for itself', table_name),
            hint = 'The primary key may have no column shard_id, order_sequence, time_hint, ulid, cursor, pagesize or '
                   'maxbytes: rename it.';
    end if;
    insert into changefeed.outbox_feed (table_name) values (setup_feed.table_name)
    on conflict on constraint outbox_feed_pkey do nothing;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has a feed already', table_name),
            hint = 'To set it up anew, call changefeed.drop_feed first: it removes what is in the outbox and the feed.';
    end if;
    perform changefeed.set_keep(table_name, keep);
    execute format('create table %s (shard_id int not null, order_sequence bigint generated always as identity '
                   '(cache 1) not null, time_hint timestamptz not null default clock_timestamp(), %s, '
                   'primary key (shard_id, order_sequence))', outbox_table, definitions);
    execute format('create table %s (shard_id int not null, ulid uuid not null, %s, primary key (shard_id, ulid))',
                   feed_table, definitions);
    execute format('create table %s (shard_id int primary key, ulid uuid not null)', state_table);
    -- Named consumers: how far each has come, and who reads for it. Python changes these rows, each by one statement.
    execute format('create table %s (consumer text not null, shard_id int not null, '
                   'last_ulid uuid not null default ''00000000-0000-0000-0000-000000000000'', '
                   'stored_at timestamptz, owner text, epoch bigint not null default 0, '
                   'renewals bigint not null default 0, wanted_by text, role_name text, '
                   'primary key (consumer, shard_id))', claim_table);
    execute format('create trigger check_claim before insert or update on %s for each row '
                   'execute function changefeed.check_claim()', claim_table);
    -- The outbox is emptied all the time: without this, reads pass the dead rows of the last hours.
    execute format('alter table %s set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, '
                   'autovacuum_vacuum_cost_delay = 0)', outbox_table);
    perform changefeed.set_notify(table_name, coalesce(notify, false));
    perform changefeed.create_functions(table_name);
    if roles then
        foreach role_name in array array[writers, readers] loop
            begin
                execute format('create role %s nologin', role_name);
            exception when duplicate_object then
                raise notice 'the role % exists on this server already: it is used for this database as well',
                    role_name;
            end;
            execute format('grant usage on schema changefeed to %s', role_name);
        end loop;
        -- By column: whoever may insert an order_sequence of his own can break the order.
        execute format('grant insert (shard_id, time_hint, %s) on %s to %s', names, outbox_table, writers);
        execute format('grant select on %s, %s, changefeed.outbox_feed to %s', feed_table, events, readers);
        execute format('grant usage on schema %I to %s', schema_part, readers);
        execute format('grant select, insert, update on %s to %s', claim_table, readers);
        perform changefeed.grant_functions(table_name);
    end if;
end
$$;
CREATE FUNCTION changefeed.shard_of(key text, shards integer) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select pg_catalog.mod(
        pg_catalog.mod(('x' operator(pg_catalog.||) pg_catalog.substr(digest, 1, 8))::bit(32)::bigint, shards::bigint)
            operator(pg_catalog.*) pg_catalog.mod(4294967296::bigint, shards::bigint)
            operator(pg_catalog.+)
            pg_catalog.mod(('x' operator(pg_catalog.||) pg_catalog.substr(digest, 9, 8))::bit(32)::bigint, shards::bigint),
        shards::bigint)::int
    from (select pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex') as digest) as hashed;
$$;
CREATE FUNCTION changefeed.sweep(sweep_group integer, OUT change_count bigint, OUT max_lag_milliseconds bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '10s'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
#variable_conflict use_column
declare
    channels text[];
begin
    change_count := 0;
    max_lag_milliseconds := 0;
    if $1 is null then
        raise exception using errcode = 'CF001', message = 'sweep_group is NULL',
            hint = 'Name the group that the shards have in changefeed.shard, 0 by default.';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'CF003',
            message = format('the isolation level is %s', current_setting('transaction_isolation')),
            hint = 'Sweep in a transaction of its own with the isolation level READ COMMITTED.';
    end if;
    -- An idle pass ends here, without a lock.
    perform from changefeed.shard s cross join lateral (
        select from changefeed.change c
        where c.feed_id = s.feed_id and c.shard = s.shard and c.change_sequence_number is null
        order by c.change_sequence_number, c.change_id limit 1
    ) w where s.sweep_group = $1 limit 1;
    if not found then
        return;
    end if;
    if exists (select from pg_sequence where seqrelid = 'changefeed.change_id'::regclass and seqcache <> 1) then
        raise exception using errcode = 'CF004', message = 'the sequence changefeed.change_id has a cache',
            hint = 'Numbers of a cached sequence do not follow the order of commits: '
                   'ALTER SEQUENCE changefeed.change_id CACHE 1.';
    end if;
    -- One pass at a time numbers a shard, even while the shard moves to another group. The statement after this
    -- one has a snapshot that was taken under the locks: where it has a transaction, it has every one that was
    -- committed before that one began. Their change_ids were drawn within transactions, so they order what it has.
    perform from changefeed.shard s where s.sweep_group = $1 order by s.feed_id, s.shard for no key update;
    with waiting as materialized (
        select s.feed_id, s.shard, s.longpoll, w.change_id, w.inserted_at, s.last_change_sequence_number
               + row_number() over (partition by s.feed_id, s.shard order by w.change_id) as number
        from changefeed.shard s
        cross join lateral (
            select c.change_id, c.inserted_at from changefeed.change c
            where c.feed_id = s.feed_id and c.shard = s.shard and c.change_sequence_number is null
            order by c.change_sequence_number, c.change_id limit 1000
        ) w
        where s.sweep_group = $1
    ), numbered as (
        update changefeed.change c set change_sequence_number = w.number from waiting w
        where c.feed_id = w.feed_id and c.shard = w.shard and c.change_id = w.change_id
    ), advanced as (
        update changefeed.shard s set last_change_sequence_number = w.last_number
        from (select feed_id, shard, max(number) as last_number from waiting group by feed_id, shard) w
        where s.feed_id = w.feed_id and s.shard = w.shard
    )
    select count(*),
           coalesce(greatest(floor(extract(epoch from clock_timestamp() - min(w.inserted_at) filter (
               where isfinite(w.inserted_at))) * 1000), 0), 0),
           array_agg(distinct 'changefeed:change:' || w.feed_id || ':' || w.shard) filter (where w.longpoll = 1)
    into change_count, max_lag_milliseconds, channels
    from waiting w;
    perform pg_notify(channel, '') from unnest(channels) as channel;
end
$_$;
CREATE FUNCTION changefeed.sweep_channel(sweep_group integer) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    select case when not exists (select from changefeed.shard s where s.sweep_group = $1 and s.longpoll = 0)
                then 'changefeed:sweep:' || $1 end;
$_$;
CREATE PROCEDURE changefeed.sweep_loop(IN sweep_group integer, IN wait_milliseconds integer DEFAULT 30000, IN duration_milliseconds integer DEFAULT 50000, IN sleep_milliseconds integer DEFAULT 50, INOUT change_count bigint DEFAULT 0, INOUT max_lag_milliseconds bigint DEFAULT 0, INOUT iterations bigint DEFAULT 0)
    LANGUAGE plpgsql
    AS $$
declare
    ends pg_catalog.timestamptz;
    pause_s double precision := 0;
    swept record;
begin
    change_count := 0;
    max_lag_milliseconds := 0;
    iterations := 0;
    -- Fails inside of a transaction, before there is a lock that would outlive the error.
    commit;
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    ends := clock_timestamp() + duration_milliseconds * interval '1 millisecond';
    if not changefeed.become_sweeper(sweep_group, least(wait_milliseconds, duration_milliseconds)) then
        return;
    end if;
    loop
        begin
            perform pg_sleep(pause_s);
            swept := changefeed.sweep(sweep_group);
        exception when query_canceled or others then
            perform changefeed.resign_sweeper(sweep_group);
            raise;
        end;
        commit;
        perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        iterations := iterations + 1;
        change_count := change_count + swept.change_count;
        max_lag_milliseconds := greatest(max_lag_milliseconds, swept.max_lag_milliseconds);
        exit when clock_timestamp() >= ends;
        pause_s := case when swept.change_count = 0 then sleep_milliseconds / 1000.0 else 0 end;
    end loop;
    perform changefeed.resign_sweeper(sweep_group);
end
$$;
CREATE FUNCTION changefeed.ulid(ms bigint, random bigint, counter bigint) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select (lpad(to_hex(ms), 12, '0') || lpad(to_hex(random), 10, '0') || lpad(to_hex(counter), 10, '0'))::uuid;
$$;
CREATE FUNCTION changefeed.ulid_part(ulid uuid, first_digit integer, digits integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select ('x' || lpad(substr(replace(ulid::text, '-', ''), first_digit, digits), 16, '0'))::bit(64)::bigint;
$$;
CREATE TABLE changefeed.change (
    feed_id integer NOT NULL,
    shard integer NOT NULL,
    change_id bigint NOT NULL,
    change_sequence_number bigint,
    inserted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');
CREATE SEQUENCE changefeed.change_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE changefeed."claim:outbox.domain_event" (
    consumer text NOT NULL,
    shard_id integer NOT NULL,
    last_ulid uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    stored_at timestamp with time zone,
    owner text,
    epoch bigint DEFAULT 0 NOT NULL,
    renewals bigint DEFAULT 0 NOT NULL,
    wanted_by text,
    role_name text
);
CREATE TABLE changefeed.feed (
    feed_id integer NOT NULL,
    name text NOT NULL,
    comment text
);
CREATE TABLE changefeed."feed:outbox.domain_event" (
    shard_id integer NOT NULL,
    ulid uuid NOT NULL,
    id text NOT NULL
);
CREATE TABLE changefeed.low_water (
    table_name text NOT NULL,
    shard_id integer NOT NULL,
    ulid uuid NOT NULL
);
CREATE TABLE changefeed.migration (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE changefeed."outbox:outbox.domain_event" (
    shard_id integer NOT NULL,
    order_sequence bigint NOT NULL,
    time_hint timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    id text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE changefeed."outbox:outbox.domain_event" ALTER COLUMN order_sequence ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME changefeed."outbox:outbox.domain_event_order_sequence_seq"
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE changefeed.outbox_feed (
    table_name text NOT NULL,
    channel text,
    set_up_at timestamp with time zone DEFAULT now() NOT NULL,
    keep text,
    CONSTRAINT outbox_feed_keep_check CHECK (((keep = 'forever'::text) OR (keep ~ '^[1-9][0-9]{0,4}[dh]$'::text)))
);
CREATE TABLE changefeed.shard (
    feed_id integer NOT NULL,
    shard integer NOT NULL,
    sweep_group integer DEFAULT 0 NOT NULL,
    longpoll smallint DEFAULT 1 NOT NULL,
    last_change_sequence_number bigint DEFAULT '2000000000000000'::bigint NOT NULL,
    CONSTRAINT shard_longpoll_check CHECK ((longpoll = ANY (ARRAY[0, 1])))
);
CREATE TABLE changefeed."state:outbox.domain_event" (
    shard_id integer NOT NULL,
    ulid uuid NOT NULL
);
CREATE TABLE relay.item (
    key_digest character varying(64) NOT NULL COLLATE pg_catalog."C",
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    partition_key text NOT NULL COLLATE pg_catalog."C",
    etag character varying(32) NOT NULL COLLATE pg_catalog."C",
    type character varying(64) NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    touched_at character varying(40) COLLATE pg_catalog."C",
    reason character varying(64) COLLATE pg_catalog."C",
    detail text COLLATE pg_catalog."C",
    quarantined_at character varying(40) COLLATE pg_catalog."C",
    "position" integer,
    invocation_id text COLLATE pg_catalog."C",
    document_id text COLLATE pg_catalog."C",
    document_parts integer,
    lsn bigint,
    place bigint,
    ulid character varying(26) COLLATE pg_catalog."C"
);
INSERT INTO changefeed."claim:outbox.domain_event" VALUES ('relay', 0, '01a2291e-ebff-9175-b3b0-f2663af94de0', '2026-11-29 21:03:45.520512+00', NULL, 2, 9, NULL, 'postgres');
INSERT INTO changefeed."feed:outbox.domain_event" VALUES (0, '01a2291e-ebe4-5013-474c-38075de260e2', 'before');
INSERT INTO changefeed."feed:outbox.domain_event" VALUES (0, '01a2291e-ebe4-5013-474c-38075de260e3', 'poison');
INSERT INTO changefeed."feed:outbox.domain_event" VALUES (0, '01a2291e-ebe4-5013-474c-38075de260e4', 'behind');
INSERT INTO changefeed."feed:outbox.domain_event" VALUES (0, '01a2291e-ebff-9175-b3b0-f2663af94de0', 'first');
INSERT INTO changefeed.migration VALUES (1, '2026-11-29 21:03:41.713882+00');
INSERT INTO changefeed.migration VALUES (2, '2026-11-29 21:03:41.725699+00');
INSERT INTO changefeed.migration VALUES (3, '2026-11-29 21:03:41.737614+00');
INSERT INTO changefeed.migration VALUES (4, '2026-11-29 21:03:41.740107+00');
INSERT INTO changefeed.migration VALUES (5, '2026-11-29 21:03:41.78925+00');
INSERT INTO changefeed."outbox:outbox.domain_event" OVERRIDING SYSTEM VALUE VALUES (0, 5, '2026-11-29 21:03:45.605891+00', 'later');
INSERT INTO changefeed."outbox:outbox.domain_event" OVERRIDING SYSTEM VALUE VALUES (0, 6, '2026-11-29 21:03:45.619297+00', 'second');
INSERT INTO changefeed.outbox_feed VALUES ('outbox.domain_event', 'changefeed:fe352686fc694b74', '2026-11-29 21:03:41.796292+00', 'forever');
INSERT INTO changefeed."state:outbox.domain_event" VALUES (0, '01a2291e-ebff-9175-b3b0-f2663af94de0');
INSERT INTO outbox.domain_event VALUES ('before', 'parked', '{"action": "Named"}');
INSERT INTO outbox.domain_event VALUES ('poison', 'parked', '{"action": "Named"}');
INSERT INTO outbox.domain_event VALUES ('behind', 'parked', '{"action": "Named"}');
INSERT INTO outbox.domain_event VALUES ('first', 'other', '{"action": "Named"}');
INSERT INTO outbox.domain_event VALUES ('later', 'parked', '{"action": "Named"}');
INSERT INTO outbox.domain_event VALUES ('second', 'other', '{"action": "Named"}');
INSERT INTO relay.item VALUES ('bbe7d3d2e328e1f6bfda920a268b216d1e22bf41bd028cdf6162bfcd2b826178', 'a05b7ce051e2724c11635738d7c40956825dbb38', 'parked', '3f9f0d6d748a4f629ca9ba748d979fd4', 'quarantinedEvent', '{"id": "a05b7ce051e2724c11635738d7c40956825dbb38", "partitionKey": "parked", "type": "quarantinedEvent", "version": 2, "reason": "message-refused", "detail": "ServiceBusError: The message ''poison'' is refused by request. Error condition: com.microsoft:argument-error.", "quarantinedAt": "2026-11-29T21:03:45.488548+00:00", "invocationId": "926d2d1e-f7d8-4141-9152-70a19cce62ce", "position": 1, "documentId": "poison", "ulid": "01M8MHXTZ4A09MEK1R0XEY4R73", "shard": 0, "document": {"id": "poison", "partition_key": "parked", "data": "{\"action\": \"Named\"}"}}', NULL, 'message-refused', 'ServiceBusError: The message ''poison'' is refused by request. Error condition: com.microsoft:argument-error.', '2026-11-29T21:03:45.488548+00:00', 1, '926d2d1e-f7d8-4141-9152-70a19cce62ce', 'poison', NULL, NULL, NULL, '01M8MHXTZ4A09MEK1R0XEY4R73');
INSERT INTO relay.item VALUES ('bbe7d3d2e328e1f6bfda920a268b216d1e22bf41bd028cdf6162bfcd2b826178', 'set-aside:5743abddddfa08c1e3a99fdebc2e8f3f1108fa12dcd2a8f58a42f141418c22ec', 'parked', '56e147c8ad364057a1c8d9a9d3c3f949', 'setAsideOrder', '{"id": "set-aside:5743abddddfa08c1e3a99fdebc2e8f3f1108fa12dcd2a8f58a42f141418c22ec", "partitionKey": "parked", "type": "setAsideOrder", "eventId": "poison", "orderedAt": "2026-11-29T21:03:45.488959+00:00", "place": {"ulid": "01M8MHXTZ4A09MEK1R0XEY4R73", "shard": 0}, "carriedOut": true}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO relay.item VALUES ('bbe7d3d2e328e1f6bfda920a268b216d1e22bf41bd028cdf6162bfcd2b826178', 'parked', 'parked', '233fae8f538e4a7483a91c112399e071', 'parkedKey', '{"place": {"ulid": "01M8MHXTZ4A09MEK1R0XEY4R73", "shard": 0}, "id": "parked", "partitionKey": "parked", "type": "parkedKey", "since": "2026-11-29T21:03:45.488819+00:00", "because": "a05b7ce051e2724c11635738d7c40956825dbb38"}', '2026-11-29T21:03:45.503235+00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO relay.item VALUES ('bbe7d3d2e328e1f6bfda920a268b216d1e22bf41bd028cdf6162bfcd2b826178', '666aef96cbca77dfaca142fab144d0c29c9bf51b', 'parked', '411d02e3f3504f5f99651e13cc8d02a3', 'quarantinedEvent', '{"id": "666aef96cbca77dfaca142fab144d0c29c9bf51b", "partitionKey": "parked", "type": "quarantinedEvent", "version": 2, "reason": "key-parked", "detail": "an earlier event of its partition key is in quarantine", "quarantinedAt": "2026-11-29T21:03:45.488699+00:00", "invocationId": "926d2d1e-f7d8-4141-9152-70a19cce62ce", "position": 2, "documentId": "behind", "ulid": "01M8MHXTZ4A09MEK1R0XEY4R74", "shard": 0, "document": {"id": "behind", "partition_key": "parked", "data": "{\"action\": \"Named\"}"}}', NULL, 'key-parked', 'an earlier event of its partition key is in quarantine', '2026-11-29T21:03:45.488699+00:00', 2, '926d2d1e-f7d8-4141-9152-70a19cce62ce', 'behind', NULL, NULL, NULL, '01M8MHXTZ4A09MEK1R0XEY4R74');
SELECT pg_catalog.setval('changefeed.change_id', 1, false);
SELECT pg_catalog.setval('changefeed."outbox:outbox.domain_event_order_sequence_seq"', 6, true);
ALTER TABLE ONLY changefeed.change
    ADD CONSTRAINT change_pkey PRIMARY KEY (feed_id, shard, change_id);
ALTER TABLE ONLY changefeed."claim:outbox.domain_event"
    ADD CONSTRAINT "claim:outbox.domain_event_pkey" PRIMARY KEY (consumer, shard_id);
ALTER TABLE ONLY changefeed."feed:outbox.domain_event"
    ADD CONSTRAINT "feed:outbox.domain_event_pkey" PRIMARY KEY (shard_id, ulid);
ALTER TABLE ONLY changefeed.feed
    ADD CONSTRAINT feed_name_key UNIQUE (name);
ALTER TABLE ONLY changefeed.feed
    ADD CONSTRAINT feed_pkey PRIMARY KEY (feed_id);
ALTER TABLE ONLY changefeed.low_water
    ADD CONSTRAINT low_water_pkey PRIMARY KEY (table_name, shard_id);
ALTER TABLE ONLY changefeed.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE ONLY changefeed."outbox:outbox.domain_event"
    ADD CONSTRAINT "outbox:outbox.domain_event_pkey" PRIMARY KEY (shard_id, order_sequence);
ALTER TABLE ONLY changefeed.outbox_feed
    ADD CONSTRAINT outbox_feed_channel_key UNIQUE (channel);
ALTER TABLE ONLY changefeed.outbox_feed
    ADD CONSTRAINT outbox_feed_pkey PRIMARY KEY (table_name);
ALTER TABLE ONLY changefeed.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (feed_id, shard);
ALTER TABLE ONLY changefeed."state:outbox.domain_event"
    ADD CONSTRAINT "state:outbox.domain_event_pkey" PRIMARY KEY (shard_id);
ALTER TABLE ONLY outbox.domain_event
    ADD CONSTRAINT domain_event_pkey PRIMARY KEY (id);
ALTER TABLE ONLY relay.item
    ADD CONSTRAINT pk_item PRIMARY KEY (key_digest, id);
CREATE UNIQUE INDEX change_numbered ON changefeed.change USING btree (feed_id, shard, change_sequence_number) INCLUDE (change_id) WHERE (change_sequence_number IS NOT NULL);
CREATE INDEX change_waiting ON changefeed.change USING btree (feed_id, shard, change_sequence_number, change_id) WHERE (change_sequence_number IS NULL);
CREATE INDEX ix_item_type ON relay.item USING btree (type, quarantined_at, "position", id);
CREATE TRIGGER check_claim BEFORE INSERT OR UPDATE ON changefeed."claim:outbox.domain_event" FOR EACH ROW EXECUTE FUNCTION changefeed.check_claim();
CREATE TRIGGER notify_readers AFTER INSERT ON changefeed."outbox:outbox.domain_event" REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION changefeed.notify_readers('changefeed:fe352686fc694b74');
CREATE TRIGGER notify_sweepers AFTER INSERT ON changefeed.change REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION changefeed.notify_sweepers();
ALTER TABLE ONLY changefeed.change
    ADD CONSTRAINT change_feed_id_shard_fkey FOREIGN KEY (feed_id, shard) REFERENCES changefeed.shard(feed_id, shard);
ALTER TABLE ONLY changefeed.low_water
    ADD CONSTRAINT low_water_table_name_fkey FOREIGN KEY (table_name) REFERENCES changefeed.outbox_feed(table_name) ON DELETE CASCADE;
ALTER TABLE ONLY changefeed.shard
    ADD CONSTRAINT shard_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES changefeed.feed(feed_id);
