-- Feeds of numbered changes, for PostgreSQL 13 and later: writers put a change on a feed in their own transaction,
-- and a sweeper gives it a number once it is committed. The SQLSTATEs are those of 0001_feeds.sql.

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
create index change_waiting on changefeed.change (feed_id, shard, change_id) where change_sequence_number is null;
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

-- One pass: numbers the changes of a group that are committed, at most 1000 of each shard.
create function changefeed.sweep(sweep_group int, out change_count bigint, out max_lag_milliseconds bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $body$
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
    perform from changefeed.shard s join changefeed.change c on c.feed_id = s.feed_id and c.shard = s.shard
    where s.sweep_group = $1 and c.change_sequence_number is null limit 1;
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
            order by c.change_id limit 1000
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
           coalesce(greatest(floor(extract(epoch from clock_timestamp() - min(w.inserted_at)) * 1000), 0), 0),
           array_agg(distinct 'changefeed:change:' || w.feed_id || ':' || w.shard) filter (where w.longpoll = 1)
    into change_count, max_lag_milliseconds, channels
    from waiting w;
    perform pg_notify(channel, '') from unnest(channels) as channel;
end
$body$;

-- One session at a time is the sweeper of a group, until it resigns or ends. False: another one was all the time.
create function changefeed.become_sweeper(sweep_group int, wait_milliseconds int) returns boolean
language plpgsql as $body$
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
language sql as $body$
    select pg_advisory_unlock(x'6366'::int, sweep_group);
$body$;

-- Sweeps a group for a while, each pass in a transaction of its own. CALL it outside of a transaction, with a
-- statement_timeout that is longer than duration_milliseconds. The last three are results.
--   wait_milliseconds      how long to wait for another sweeper to end; in vain, all results are 0
--   duration_milliseconds  when to return, counted from the call
--   sleep_milliseconds     the pause after a pass that found nothing
create procedure changefeed.sweep_loop(
    sweep_group int, wait_milliseconds int default 30000, duration_milliseconds int default 50000,
    sleep_milliseconds int default 50, inout change_count bigint default 0,
    inout max_lag_milliseconds bigint default 0, inout iterations bigint default 0)
language plpgsql as $body$
declare
    ends timestamptz := clock_timestamp() + duration_milliseconds * interval '1 millisecond';
    pause_s double precision := 0;
    swept record;
begin
    change_count := 0;
    max_lag_milliseconds := 0;
    iterations := 0;
    -- Fails inside of a transaction, before there is a lock that would outlive the error.
    commit;
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
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $body$
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
language sql stable security definer set search_path = pg_catalog, pg_temp as $body$
    select exists (select from changefeed.change c
                   where c.feed_id = $1 and c.shard = $2 and c.change_sequence_number > $3);
$body$;

revoke all on function changefeed.sweep(int), changefeed.become_sweeper(int, int), changefeed.resign_sweeper(int),
    changefeed.sweep_channel(int), changefeed.read_changes(int, int, bigint, int),
    changefeed.has_changes(int, int, bigint), changefeed.change_channel(int, int) from public;
revoke all on procedure changefeed.sweep_loop(int, int, int, int, bigint, bigint, bigint) from public;
