-- The schema changefeed, for PostgreSQL 13 and later: feeds in outbox mode, and of numbered changes (generation 1).
--
-- Every condition that is raised has a SQLSTATE of its own:
--   CF001  an argument is out of its bounds, or the table cannot have a feed
--   CF002  the cursor is ahead of the feed: another shard's or feed's, or the database was restored
--   CF003  the transaction's isolation level is not READ COMMITTED
--   CF004  the sequence of the outbox table, or changefeed.change_id, has a cache
--   CF005  the cursor is behind the low-water mark: what follows it was deleted by retention
--   CF006  the consumer belongs to another role
-- and 55P03 (lock_not_available) says that another session holds the shard: try again.
--
-- Functions that are called with a search path of the caller's set their own, or qualify all names.

-- Tables
-- ------

-- `keep` is how long positions are kept: '30d', '12h' or 'forever'. NULL: nobody has decided, and everything is kept.
create table changefeed.outbox_feed (
    table_name text primary key,
    channel text unique,
    set_up_at timestamptz not null default now(),
    keep text check (keep = 'forever' or keep ~ '^[1-9][0-9]{0,4}[dh]$')
);

-- The last position that was deleted in a shard. A cursor before it would skip events.
create table changefeed.low_water (
    table_name text not null references changefeed.outbox_feed on delete cascade,
    shard_id int not null,
    ulid uuid not null,
    primary key (table_name, shard_id)
);

-- Positions and names
-- -------------------

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

-- The shard of a key: the first 8 bytes of the SHA-256 of its UTF-8, an unsigned big-endian number, modulo shards.
-- Writers call it for each event: with all names qualified, it needs no setting, which would cost as much as the rest.
create function changefeed.shard_of(key text, shards int) returns int
language sql immutable strict parallel safe as $body$
    select pg_catalog.mod(
        pg_catalog.mod(('x' operator(pg_catalog.||) pg_catalog.substr(digest, 1, 8))::bit(32)::bigint, shards::bigint)
            operator(pg_catalog.*) pg_catalog.mod(4294967296::bigint, shards::bigint)
            operator(pg_catalog.+)
            pg_catalog.mod(('x' operator(pg_catalog.||) pg_catalog.substr(digest, 9, 8))::bit(32)::bigint, shards::bigint),
        shards::bigint)::int
    from (select pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex') as digest) as hashed;
$body$;

-- The quoted name of the event table, from schema.Table.
create function changefeed.event_table(table_name text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $body$
    select format('%I.%I', split_part(table_name, '.', 1), substr(table_name, length(split_part(table_name, '.', 1)) + 2));
$body$;

-- The columns of a table's primary key. `equals` is the operator of its index, whose schema may not be in a search
-- path.
create function changefeed.key_column(events regclass)
returns table (place bigint, name name, quoted text, written_type text, definition text, equals text)
language sql stable set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Reading
-- -------

-- What every read requires. Under REPEATABLE READ and SERIALIZABLE the snapshot is older than the shard's lock.
create function changefeed.check_read(shard_id int, last_read uuid, pagesize int) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $body$
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
language plpgsql immutable set search_path = pg_catalog, pg_temp as $body$
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

-- Raises where retention has deleted positions behind the cursor. To be called after the page was read: a later
-- snapshot has every deletion that the page's snapshot had. The cursor START means what is left.
create function changefeed.check_low_water(table_name text, shard_id int, last_read uuid) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Wakes readers: one notification for each shard that a statement has written to, delivered when it commits.
create function changefeed.notify_readers() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    perform pg_notify(tg_argv[0], added.shard_id::text) from (select distinct shard_id from inserted) as added;
    return null;
end
$body$;

-- Creates the functions of a feed, or replaces them. Each of their statements has one good plan, by index. Statistics
-- from when a table was small must not choose another: hence the settings. Then a generic plan is as good as any, and
-- spares planning at each call. JIT would compile what runs for less than a millisecond.
create function changefeed.create_functions(table_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Grants readers what create_functions has made, and the tables that it reads.
create function changefeed.grant_functions(table_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    execute format('grant execute on function changefeed.%1$I(int, uuid, int), changefeed.%2$I(int, uuid, int), '
                   'changefeed.%2$I(int, uuid, int, bigint), changefeed.%3$I(int, uuid), changefeed.%4$I() to %5$I',
                   'read_feed:' || table_name, 'read_events:' || table_name, 'has_news:' || table_name,
                   'retain:' || table_name, 'changefeed.readers:' || table_name);
    execute format('grant select on changefeed.low_water to %I', 'changefeed.readers:' || table_name);
end
$body$;

-- Consumers and retention
-- -----------------------

-- A consumer belongs to the role that made its first claim: nobody else changes its claims. The table's owner may.
create function changefeed.check_claim() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Deletes up to `rows` positions of a shard that are before `before`, and that every consumer has read.
--   deleted  how many; fewer than `rows` where there are no more to delete
--   held_by  the consumer that has not read all of the older ones
create function changefeed.prune_shard(table_name text, shard_id int, before uuid, rows int,
                                       out deleted bigint, out held_by text)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off set jit = off as $body$
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
$body$;

-- Sets how long positions are kept: '30d', '12h' or 'forever'.
create function changefeed.set_keep(table_name text, keep text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Setting up and dropping
-- -----------------------

-- Sets whether commits wake readers that wait. A reader notices when it is started again.
create function changefeed.set_notify(table_name text, notify boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Sets up the feed of a table that has a primary key.
--   table_name  schema.Table, both as they are spelt in the catalog
--   outbox      only true is supported
--   notify      whether commits wake readers that wait: writers then take turns, as a commit that notifies holds a lock
--               of the whole server. Otherwise, readers poll
--   roles       whether the roles "changefeed.writers:schema.Table" and "changefeed.readers:schema.Table" are made;
--               roles belong to the whole server, so two databases with the same table share them
--   keep        how long positions are kept: '30d', '12h' or 'forever'; NULL if that is not decided yet
create function changefeed.setup_feed(table_name text, outbox boolean default true, notify boolean default false,
                                      roles boolean default true, keep text default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Removes a feed: what is in its outbox and what was numbered. The event table stays.
create function changefeed.drop_feed(table_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Backfill of rows that were in an event table before it had a feed
-- -----------------------------------------------------------------

-- Begins a backfill: lists the rows of the event table that are not on the feed, in order, in a table of its own,
-- "changefeed"."backfill:schema.Table". Returns how many; NULL if a backfill has been begun and is not finished.
--   shard_id     the shard of all rows, or NULL
--   shard_column the column whose text gives each row its shard by changefeed.shard_of, or NULL
--   shards       how many shards there are, with shard_column
--   order_by     columns of the event table; the primary key decides between equal rows
--   time_column  the column with the times for the ULIDs, or NULL for the present time
--   anyway       whether to go on where a shard has been read or written to: what is backfilled comes after that
-- It compares keys with the operators of their index, and reads each table once: a join of another kind than by hash or
-- merge would read the feed once for each event.
create function changefeed.begin_backfill(table_name text, shard_id int, shard_column text, shards int,
                                          order_by text[], time_column text, anyway boolean) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_nestloop = off set jit = off as $body$
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
$body$;

-- Puts the next `rows` rows on the feed: moves them to the outbox. Returns how many, and removes the table of the
-- backfill when there are none left; NULL if no backfill has been begun.
create function changefeed.continue_backfill(table_name text, rows int) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off set jit = off as $body$
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
$body$;

-- Rights
-- ------

-- Only the schema's owner may set up, change, prune, backfill and drop feeds.
revoke all on function changefeed.setup_feed(text, boolean, boolean, boolean, text), changefeed.drop_feed(text),
    changefeed.set_keep(text, text), changefeed.set_notify(text, boolean), changefeed.create_functions(text),
    changefeed.grant_functions(text), changefeed.key_column(regclass), changefeed.prune_shard(text, int, uuid, int),
    changefeed.begin_backfill(text, int, text, int, text[], text, boolean), changefeed.continue_backfill(text, int)
    from public;

-- Generation 1: feeds of numbered changes
-- ---------------------------------------

-- Writers put a change on a feed in their own transaction, and a sweeper gives it a number once it is committed.

create table changefeed.feed (
    feed_id int primary key,
    name text not null unique,
    comment text
);

-- A group of shards has a sweeper of its own. With longpoll = 0 nothing is notified for a shard: its sweeper and
-- its readers look again after a pause. The first number given is last_change_sequence_number + 1.
create table changefeed.shard (
    feed_id int not null references changefeed.feed,
    shard int not null,
    sweep_group int not null default 0,
    longpoll smallint not null default 1 check (longpoll in (0, 1)),
    last_change_sequence_number bigint not null default 2000000000000000,
    primary key (feed_id, shard)
);

create sequence changefeed.change_id as bigint no cycle cache 1;

create table changefeed.change (
    feed_id int not null,
    shard int not null,
    change_id bigint not null,
    change_sequence_number bigint,
    inserted_at timestamptz not null default clock_timestamp(),
    primary key (feed_id, shard, change_id),
    foreign key (feed_id, shard) references changefeed.shard
);
create unique index change_numbered on changefeed.change (feed_id, shard, change_sequence_number)
    include (change_id) where change_sequence_number is not null;
-- With the number in the order, no index but this one can serve: by the primary key, a sweep could pass all history.
create index change_waiting on changefeed.change (feed_id, shard, change_sequence_number, change_id)
    where change_sequence_number is null;
-- Each row is updated once: without this, sweeps pass the dead entries of the last hours in change_waiting.
alter table changefeed.change set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Where the sweepers of a group are notified; NULL if one of its shards has longpoll = 0.
create function changefeed.sweep_channel(sweep_group int) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $body$
    select case when not exists (select from changefeed.shard s where s.sweep_group = $1 and s.longpoll = 0)
                then 'changefeed:sweep:' || $1 end;
$body$;

-- Where the readers of a shard are notified; NULL if it has longpoll = 0.
create function changefeed.change_channel(feed_id int, shard int) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $body$
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
$body$;

-- Wakes sweepers: one notification for each group that a statement has written to, delivered when it commits.
create function changefeed.notify_sweepers() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
    perform pg_notify('changefeed:sweep:' || written.sweep_group, '')
    from (select distinct s.sweep_group from inserted i
          join changefeed.shard s on s.feed_id = i.feed_id and s.shard = i.shard where s.longpoll = 1) as written;
    return null;
end
$body$;

create trigger notify_sweepers after insert on changefeed.change referencing new table as inserted
    for each statement execute function changefeed.notify_sweepers();

-- One pass: numbers the changes of a group that are committed, at most 1000 of each shard. A change whose inserted_at
-- is infinite has no lag.
create function changefeed.sweep(sweep_group int, out change_count bigint, out max_lag_milliseconds bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s'
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set jit = off set plan_cache_mode = force_generic_plan as $body$
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
$body$;

-- One session at a time is the sweeper of a group, until it resigns or ends. False: another one was all the time.
create function changefeed.become_sweeper(sweep_group int, wait_milliseconds int) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $body$
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
$body$;

create function changefeed.resign_sweeper(sweep_group int) returns void
language sql set search_path = pg_catalog, pg_temp as $body$
    select pg_advisory_unlock(x'6366'::int, sweep_group);
$body$;

-- Sweeps a group for a while, each pass in a transaction of its own. CALL it outside of a transaction, with a
-- statement_timeout that is longer than duration_milliseconds. The last three are results.
--   wait_milliseconds      how long to wait for another sweeper to end; in vain, all results are 0
--   duration_milliseconds  when to return, counted from the call
--   sleep_milliseconds     the pause after a pass that found nothing
-- A procedure with a setting of its own may not commit, so it sets the search path in each of its transactions.
create procedure changefeed.sweep_loop(
    sweep_group int, wait_milliseconds int default 30000, duration_milliseconds int default 50000,
    sleep_milliseconds int default 50, inout change_count bigint default 0,
    inout max_lag_milliseconds bigint default 0, inout iterations bigint default 0)
language plpgsql as $body$
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
$body$;

-- The changes of a shard behind the cursor, in order. A page shorter than asked is not the head; an empty page is.
create function changefeed.read_changes(feed_id int, shard int, "cursor" bigint, pagesize int default 100)
returns table (change_id bigint, change_sequence_number bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
    set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
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
$body$;

-- Whether a read will find something, so a reader that waits can ask often.
create function changefeed.has_changes(feed_id int, shard int, "cursor" bigint) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
    set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $body$
begin
    return exists (select from changefeed.change c
                   where c.feed_id = $1 and c.shard = $2 and c.change_sequence_number > $3
                   order by c.change_sequence_number limit 1);
end
$body$;

revoke all on function changefeed.sweep(int), changefeed.become_sweeper(int, int), changefeed.resign_sweeper(int),
    changefeed.sweep_channel(int), changefeed.read_changes(int, int, bigint, int),
    changefeed.has_changes(int, int, bigint), changefeed.change_channel(int, int) from public;
revoke all on procedure changefeed.sweep_loop(int, int, int, int, bigint, bigint, bigint) from public;
