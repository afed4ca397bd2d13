-- Generation 1: a change whose inserted_at is infinite ended every sweep of its shard, as it has no lag that is a number.
create or replace function changefeed.sweep(sweep_group int, out change_count bigint, out max_lag_milliseconds bigint)
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
