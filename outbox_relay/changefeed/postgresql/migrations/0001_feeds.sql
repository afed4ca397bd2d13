-- Feeds in outbox mode, for PostgreSQL 13 and later.
--
-- Every condition that is raised has a SQLSTATE of its own:
--   CF001  an argument is out of its bounds, or the table cannot have a feed
--   CF002  the cursor is ahead of the feed: another shard's or feed's, or the database was restored
--   CF003  the transaction's isolation level is not READ COMMITTED
--   CF004  the sequence of the outbox table has a cache
-- and 55P03 (lock_not_available) says that another reader holds the shard: try again.

create table changefeed.outbox_feed (
    table_name text primary key,
    channel text unique,
    set_up_at timestamptz not null default now()
);

-- A ULID of 48 bits of time, 40 random bits and a counter of 40 bits. The type uuid compares byte by byte.
create function changefeed.ulid(ms bigint, random bigint, counter bigint) returns uuid
language sql immutable strict parallel safe as $body$
    select (lpad(to_hex(ms), 12, '0') || lpad(to_hex(random), 10, '0') || lpad(to_hex(counter), 10, '0'))::uuid;
$body$;

-- `bits` random bits (40 at most). Digits 13 and 17 of a random UUID are its version and variant.
create function changefeed.random_bits(bits int) returns bigint
language sql volatile parallel safe as $body$
    select ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 21, 10))::bit(40)::bigint
           & ((1::bigint << bits) - 1);
$body$;

-- The pieces of a ULID.
create function changefeed.ulid_part(ulid uuid, first_digit int, digits int) returns bigint
language sql immutable strict parallel safe as $body$
    select ('x' || lpad(substr(replace(ulid::text, '-', ''), first_digit, digits), 16, '0'))::bit(64)::bigint;
$body$;

-- What every read requires. Under REPEATABLE READ and SERIALIZABLE the snapshot is older than the shard's lock.
create function changefeed.check_read(shard_id int, last_read uuid, pagesize int) returns void
language plpgsql stable as $body$
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
$body$;

-- A cursor is at most the last ULID given: one that is ahead would skip what comes until the feed has caught up.
create function changefeed.check_cursor(last_read uuid, last_given uuid) returns void
language plpgsql immutable as $body$
begin
    if last_read > coalesce(last_given, '00000000-0000-0000-0000-000000000000') then
        raise exception using errcode = 'CF002',
            message = format('the cursor %s is ahead of the last position given in this shard, %s',
                             last_read, coalesce(last_given::text, 'none')),
            hint = 'It is of another shard or feed, or the database was restored: read again from the position of '
                   'the restored consumer, or from the beginning.';
    end if;
end
$body$;

-- Wakes readers: one notification for each shard that a statement has written to, delivered when it commits.
create function changefeed.notify_readers() returns trigger
language plpgsql as $body$
begin
    perform pg_notify(tg_argv[0], added.shard_id::text) from (select distinct shard_id from inserted) as added;
    return null;
end
$body$;

-- Sets up the feed of a table that has a primary key.
--   table_name  schema.Table, both as they are spelt in the catalog
--   outbox      only true is supported
--   notify      whether commits wake readers that wait; false spares writers the NOTIFY, and readers poll
--   roles       whether the roles "changefeed.writers:schema.Table" and "changefeed.readers:schema.Table" are made;
--               roles belong to the whole server, so two databases with the same table share them
create function changefeed.setup_feed(table_name text, outbox boolean default true, notify boolean default true,
                                      roles boolean default true) returns void
language plpgsql as $body$
declare
    schema_part text := split_part(table_name, '.', 1);
    table_part text := substr(table_name, length(split_part(table_name, '.', 1)) + 2);
    events text := format('%I.%I', schema_part, table_part);
    events_oid oid := to_regclass(events);
    outbox_table text := format('changefeed.%I', 'outbox:' || table_name);
    feed_table text := format('changefeed.%I', 'feed:' || table_name);
    state_table text := format('changefeed.%I', 'state:' || table_name);
    claim_table text := format('changefeed.%I', 'claim:' || table_name);
    read_feed text := format('changefeed.%I', 'read_feed:' || table_name);
    has_news text := format('changefeed.%I', 'has_news:' || table_name);
    read_events text := format('changefeed.%I', 'read_events:' || table_name);
    channel_name text := case when notify then 'changefeed:' || left(md5(table_name), 16) end;
    writers text := format('%I', 'changefeed.writers:' || table_name);
    readers text := format('%I', 'changefeed.readers:' || table_name);
    definitions text;
    parameters text;
    names text;
    first_name text;
    of_feed text;
    joined text;
    pairs text;
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
    -- Events are looked for with the operators of the primary key's index, whose schema may not be in a search path.
    select string_agg(format('%I %s%s not null', a.attname, format_type(a.atttypid, a.atttypmod),
                             case when a.attcollation <> t.typcollation and a.attcollation <> 0
                                  then format(' collate %s', a.attcollation::regcollation) else '' end),
                      ', ' order by k.place),
           string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by k.place),
           string_agg(format('%I', a.attname), ', ' order by k.place),
           (array_agg(format('%I', a.attname) order by k.place))[1],
           string_agg(format('f.%I', a.attname), ', ' order by k.place),
           string_agg(format('changefeed_event.%1$I %2$s f.%1$I', a.attname,
                             coalesce(format('operator(%I.%s)', o.oprnamespace::regnamespace::name, o.oprname), '=')),
                      ' and ' order by k.place),
           string_agg(format('%L, f.%I', a.attname, a.attname), ', ' order by k.place)
    into definitions, parameters, names, first_name, of_feed, joined, pairs
    from pg_index i
    cross join unnest(i.indkey::int2[]) with ordinality as k(attnum, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    join pg_type t on t.oid = a.atttypid
    left join pg_opclass c on c.oid = (i.indclass::oid[])[k.place - 1]
    left join pg_amop p on p.amopfamily = c.opcfamily and p.amoplefttype = c.opcintype
        and p.amoprighttype = c.opcintype and p.amopstrategy = 3
        and p.amopmethod = (select m.oid from pg_am m where m.amname = 'btree')
    left join pg_operator o on o.oid = p.amopopr
    where i.indrelid = events_oid and i.indisprimary;
    if definitions is null then
        raise exception using errcode = 'CF001', message = format('the table %s has no primary key', table_name),
            hint = 'Add one: outbox and feed refer to events by it.';
    end if;
    if exists (select from pg_attribute where attrelid = events_oid and attnum > 0 and not attisdropped
               and attname in ('shard_id', 'order_sequence', 'time_hint', 'ulid', 'cursor', 'pagesize')
               and attnum = any (array(select unnest(indkey::int2[]) from pg_index
                                       where indrelid = events_oid and indisprimary))) then
        raise exception using errcode = 'CF001',
            message = format('the primary key of %s has a column that the feed needs for itself', table_name),
            hint = 'The primary key may have no column shard_id, order_sequence, time_hint, ulid, cursor or pagesize: '
                   'rename it.';
    end if;

    insert into changefeed.outbox_feed (table_name, channel) values (setup_feed.table_name, channel_name)
    on conflict on constraint outbox_feed_pkey do nothing;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has a feed already', table_name),
            hint = 'To set it up anew, call changefeed.drop_feed first: it removes what is in the outbox and the feed.';
    end if;
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
                   'renewals bigint not null default 0, wanted_by text, primary key (consumer, shard_id))',
                   claim_table);
    -- The outbox is emptied all the time: without this, reads pass the dead rows of the last hours.
    execute format('alter table %s set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, '
                   'autovacuum_vacuum_cost_delay = 0)', outbox_table);
    if notify then
        execute format('create trigger notify_readers after insert on %s referencing new table as inserted '
                       'for each statement execute function changefeed.notify_readers(%L)', outbox_table, channel_name);
    end if;

    execute format($function$
create function %1$s(shard_id int, "cursor" uuid, pagesize int default 100)
returns table (ulid uuid, %2$s)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $read$
#variable_conflict use_column
<<reading>>
declare
    last_given uuid;
    last_ms bigint;
    last_random bigint;
    last_counter bigint;
    now_ms bigint;
begin
    perform changefeed.check_read($1, $2, $3);
    return query select f.ulid, %5$s from %4$s f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        return;
    end if;
    select s.ulid into last_given from %6$s s where s.shard_id = $1;
    perform changefeed.check_cursor($2, last_given);
    -- An idle poll ends here, without a lock: one snapshot has nothing new, neither in the outbox nor in the feed. With
    -- a snapshot for each, what another reader moves in between would be in none, and an empty page not the head.
    if not exists (select from %7$s o where o.shard_id = $1)
       and not exists (select from %4$s f where f.shard_id = $1 and f.ulid > $2) then
        return;
    end if;

    -- One reader at a time numbers a shard; every other waits here, and finds what this one has numbered.
    insert into %6$s (shard_id, ulid) values ($1, '00000000-0000-0000-0000-000000000000') on conflict do nothing;
    select s.ulid into strict last_given from %6$s s where s.shard_id = $1 for update;
    return query select f.ulid, %5$s from %4$s f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        return;
    end if;
    if exists (select from pg_catalog.pg_sequence s
               where s.seqrelid = pg_catalog.pg_get_serial_sequence(%8$L, 'order_sequence')::regclass
               and s.seqcache <> 1) then
        raise exception using errcode = 'CF004', message = %9$L,
            hint = 'Numbers of a cached sequence do not follow the order of commits: ALTER SEQUENCE … CACHE 1.';
    end if;

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
        select * from %7$s o where o.shard_id = $1 order by o.order_sequence limit $3
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
        delete from %7$s o using numbered n where o.shard_id = $1 and o.order_sequence = n.order_sequence
    ), stored as (
        update %6$s s set ulid = n.ulid
        from (select numbered.ulid from numbered order by order_sequence desc limit 1) as n where s.shard_id = $1
    )
    insert into %4$s (shard_id, ulid, %3$s) select $1, n.ulid, %10$s from numbered n order by n.ulid;
    return query select f.ulid, %5$s from %4$s f where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
end
$read$
$function$, read_feed, parameters, names, feed_table, of_feed, state_table, outbox_table,
        outbox_table, format('the sequence of %s has a cache', outbox_table), replace(of_feed, 'f.', 'n.'));

    -- A join on read_feed in one statement would look for the events in a snapshot taken before read_feed began,
    -- and miss those committed since. Here the join is a statement of its own.
    execute format($function$
create function %1$s(shard_id int, "cursor" uuid, pagesize int default 100)
returns table (ulid uuid, missing text, event %2$s)
language plpgsql set search_path = pg_catalog, pg_temp as $read$
#variable_conflict use_column
declare
    last_of_page uuid;
begin
    select r.ulid into last_of_page from %3$s($1, $2, $3) r order by r.ulid desc limit 1;
    return query
        select f.ulid, case when changefeed_event.%4$s is null then jsonb_build_object(%5$s)::text end,
               changefeed_event
        from %6$s f left join %2$s changefeed_event on %7$s
        where f.shard_id = $1 and f.ulid > $2 and f.ulid <= last_of_page order by f.ulid;
end
$read$
$function$, read_events, events, read_feed, first_name, pairs, feed_table, joined);

    -- Whether a read may find something, or would refuse a cursor that is ahead: without a lock, so a reader that
    -- waits can ask often.
    execute format($function$
create function %1$s(shard_id int, "cursor" uuid) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $read$
    select exists (select from %2$s f where f.shard_id = $1 and f.ulid > $2)
        or exists (select from %3$s o where o.shard_id = $1)
        or $2 > coalesce((select s.ulid from %4$s s where s.shard_id = $1), '00000000-0000-0000-0000-000000000000');
$read$
$function$, has_news, feed_table, outbox_table, state_table);

    execute format('revoke all on function %s(int, uuid, int), %s(int, uuid, int), %s(int, uuid) from public',
                   read_feed, read_events, has_news);
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
        execute format('grant execute on function %s(int, uuid, int), %s(int, uuid, int), %s(int, uuid) to %s',
                       read_feed, read_events, has_news, readers);
        execute format('grant select on %s, %s, changefeed.outbox_feed to %s', feed_table, events, readers);
        execute format('grant usage on schema %I to %s', schema_part, readers);
        execute format('grant select, insert, update on %s to %s', claim_table, readers);
    end if;
end
$body$;

-- Removes a feed: what is in its outbox and what was numbered. The event table stays.
create function changefeed.drop_feed(table_name text) returns void
language plpgsql as $body$
declare
    schema_name text := format('%I', split_part(table_name, '.', 1));
    events text := format('%s.%I', schema_name, substr(table_name, length(split_part(table_name, '.', 1)) + 2));
    role_name text;
begin
    delete from changefeed.outbox_feed f where f.table_name = drop_feed.table_name;
    if not found then
        raise exception using errcode = 'CF001', message = format('%s has no feed', table_name),
            hint = 'See the feeds there are in changefeed.outbox_feed.';
    end if;
    -- Where the event table was dropped with cascade, read_events has gone with it.
    execute format('drop function if exists changefeed.%I(int, uuid, int), changefeed.%I(int, uuid, int), '
                   'changefeed.%I(int, uuid)', 'read_events:' || table_name, 'read_feed:' || table_name,
                   'has_news:' || table_name);
    execute format('drop table changefeed.%I, changefeed.%I, changefeed.%I, changefeed.%I', 'outbox:' || table_name,
                   'feed:' || table_name, 'state:' || table_name, 'claim:' || table_name);
    execute format('drop table if exists changefeed.%I', 'backfill:' || table_name);
    foreach role_name in array array['changefeed.writers:' || table_name, 'changefeed.readers:' || table_name] loop
        if exists (select from pg_roles where rolname = role_name) then
            -- What setup_feed has granted, and nothing else: DROP OWNED would drop the role's own tables.
            execute format('revoke usage on schema changefeed from %I', role_name);
            execute format('revoke select on changefeed.outbox_feed from %I', role_name);
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
$body$;

-- Only migrations and setup_feed's owner may create or drop feeds.
revoke all on function changefeed.setup_feed(text, boolean, boolean, boolean), changefeed.drop_feed(text) from public;
