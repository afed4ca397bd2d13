-- Feeds with a sweeper: writers insert into changefeed.change, and one session a group numbers what was
-- committed. The numbers of errors are those of the first migration.
create table changefeed.feed (
    feed_id int not null primary key,
    name nvarchar(200) not null unique,
    comment nvarchar(max) null
);
go
create table changefeed.shard (
    feed_id int not null references changefeed.feed (feed_id),
    shard int not null,
    sweep_group int not null default (0),
    longpoll bit not null default (1),
    last_change_sequence_number bigint not null default (2000000000000000),
    primary key (feed_id, shard)
);
go
-- A trigger stands in for a foreign key to changefeed.shard, whose check would wait for the sweeper: it updates
-- that row.
create table changefeed.change (
    feed_id int not null,
    shard int not null,
    change_id bigint not null,
    change_sequence_number bigint null,
    inserted_at datetime2(3) not null default (sysutcdatetime()),
    primary key (feed_id, shard, change_id)
);
go
create trigger changefeed.known_shard on changefeed.change after insert as
begin
    set nocount on;
    if exists (
        select 1 from inserted as i
        where not exists (select 1 from changefeed.shard as s where s.feed_id = i.feed_id and s.shard = i.shard)
    )
        throw 77101, 'changefeed 77101: the feed has no such shard. Insert it into changefeed.shard first.', 1;
end;
go
create index change_sequence_number on changefeed.change (feed_id, shard, change_sequence_number, change_id);
go
-- Babelfish has no NO CACHE, and no cache unless one is asked for. SQL Server's default is a cache.
if serverproperty('Babelfish') = 1
    exec (N'create sequence changefeed.change_id as bigint start with 1 increment by 1');
else
    exec (N'create sequence changefeed.change_id as bigint start with 1 increment by 1 no cache');
go
-- Numbers up to 1 000 committed changes of a shard, in the order of change_id and without gaps. For sweep only.
create procedure changefeed.sweep_shard
    @sweep_group int, @feed_id int, @shard int, @change_count int output, @max_lag_milliseconds bigint output
as
begin
    set nocount on;
    declare
        @resource nvarchar(255) = concat('changefeed.sweep/', @sweep_group),
        @message nvarchar(2048),
        @granted int,
        @last_number bigint;
    declare @taken table (
        change_id bigint not null primary key, position int not null, inserted_at datetime2(3) not null);
    begin transaction;
    exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive',
        @LockOwner = 'Transaction', @LockTimeout = 10000;
    if @granted < 0
    begin
        set @message = concat('changefeed 77106: another session swept the group ', @sweep_group,
            ' for more than 10 s. Nothing was changed: try again.');
        throw 77106, @message, 1;
    end;
    set @last_number = (
        select last_change_sequence_number from changefeed.shard where feed_id = @feed_id and shard = @shard
    );
    -- One SELECT, so one snapshot: see number: of the first migration. An UPDATE would wait for open writers.
    insert into @taken (change_id, position, inserted_at)
    select c.change_id, row_number() over (order by c.change_id), c.inserted_at
    from (
        select top (1000) change_id, inserted_at from changefeed.change
        where feed_id = @feed_id and shard = @shard and change_sequence_number is null
        order by change_id
    ) as c;
    set @change_count = @@rowcount;
    if @change_count > 0
    begin
        update c set change_sequence_number = @last_number + t.position
        from @taken as t
        inner loop join changefeed.change as c with (rowlock, forceseek)
            on c.feed_id = @feed_id and c.shard = @shard and c.change_id = t.change_id
        option (force order);
        update changefeed.shard set last_change_sequence_number = @last_number + @change_count
        where feed_id = @feed_id and shard = @shard;
    end;
    commit transaction;
    set @max_lag_milliseconds = (
        select max(datediff_big(millisecond, inserted_at, sysutcdatetime())) from @taken
    );
end;
go
-- In SQL Server a cache may leave a gap; in Babelfish it gives each session numbers of its own, which do not
-- follow commits. There, sys.sequences has no rows.
create procedure changefeed.check_sequence as
begin
    set nocount on;
    declare @message nvarchar(2048), @cache bigint;
    if serverproperty('Babelfish') = 1
        exec sp_executesql
            N'set @cache = (
                select max(seqcache) from pg_catalog.pg_sequence
                where seqrelid = object_id(''changefeed.change_id''))',
            N'@cache bigint output', @cache output;
    else
        set @cache = (
            select case when is_cached = 1 then coalesce(cache_size, 2) else 1 end from sys.sequences
            where object_id = object_id('changefeed.change_id')
        );
    if @cache > 1
    begin
        set @message = concat('changefeed 77105: the sequence changefeed.change_id has a cache, so its ',
            'numbers need not follow the order of commits. Run: ALTER SEQUENCE changefeed.change_id NO CACHE.');
        throw 77105, @message, 1;
    end;
end;
go
-- One pass over the shards of a group. Call it again as long as @change_count is above 0.
create procedure changefeed.sweep
    @sweep_group int = 0, @change_count int = null output, @max_lag_milliseconds bigint = null output
as
begin
    set nocount on;
    set implicit_transactions off;
    declare
        @message nvarchar(2048),
        @feed_id int,
        @shard int,
        @place int = 1,
        @shards int,
        @count int,
        @lag bigint;
    declare @swept table (place int not null primary key, feed_id int not null, shard int not null);
    exec changefeed.check_session;
    exec changefeed.check_sequence;
    set xact_abort on;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    set @change_count = 0;
    set @max_lag_milliseconds = 0;
    begin try
        insert into @swept (place, feed_id, shard)
        select row_number() over (order by feed_id, shard), feed_id, shard from changefeed.shard
        where sweep_group = @sweep_group;
        set @shards = @@rowcount;
        while @place <= @shards
        begin
            select @feed_id = feed_id, @shard = shard from @swept where place = @place;
            exec changefeed.sweep_shard @sweep_group, @feed_id, @shard, @count output, @lag output;
            set @change_count = @change_count + @count;
            if @lag > @max_lag_milliseconds set @max_lag_milliseconds = @lag;
            set @place = @place + 1;
        end;
    end try
    begin catch
        if @@trancount > 0 rollback transaction;
        if error_number() = 1222
        begin
            set @message = concat('changefeed 77106: another session held a lock of changefeed.change for ',
                'more than 10 s. What was numbered stays: try again.');
            throw 77106, @message, 1;
        end;
        throw;
    end catch
end;
go
-- Waits on the server. Babelfish has no WAITFOR, and SQL Server no pg_sleep.
create procedure changefeed.sleep @milliseconds int as
begin
    set nocount on;
    declare @text nvarchar(200);
    if serverproperty('Babelfish') = 1
        set @text = concat(N'declare @n int = (select count(*) from pg_sleep(', @milliseconds / 1000.0, N'))');
    else
        set @text = concat(N'waitfor delay ''',
            cast(dateadd(millisecond, @milliseconds, cast('00:00:00' as time(3))) as varchar(12)), N'''');
    exec (@text);
end;
go
-- Gives back the locks of sweep_loop, which has the table #held. For sweep_loop only.
create procedure changefeed.release_sweep @sweep_group int as
begin
    set nocount on;
    declare @resource nvarchar(255) = N'';
    while @resource is not null
    begin
        set @resource = (
            select top (1) concat('changefeed.longpoll/', feed_id, '/', shard, '/', number) from #held
            order by feed_id, shard
        );
        if @resource is not null
        begin
            exec sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
            delete from #held
            where concat('changefeed.longpoll/', feed_id, '/', shard, '/', number) = @resource;
        end;
    end;
    set @resource = concat('changefeed.sweep_loop/', @sweep_group);
    exec sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
end;
go
-- Sweeps a group for @duration_milliseconds, if no other session does so within @wait_milliseconds. Run it in a
-- loop, and as often as you have processes: the others wait here to take over.
--   @sleep_milliseconds  the pause after a pass that found nothing
create procedure changefeed.sweep_loop
    @sweep_group int = 0,
    @wait_milliseconds int = 30000,
    @duration_milliseconds int = 50000,
    @sleep_milliseconds int = 100,
    @change_count int = null output,
    @max_lag_milliseconds bigint = null output,
    @iterations int = null output
as
begin
    set nocount on;
    set implicit_transactions off;
    declare
        @resource nvarchar(255) = concat('changefeed.sweep_loop/', @sweep_group),
        @message nvarchar(2048),
        @granted int,
        @began datetime2(3),
        @slept bigint = 0,
        @count int,
        @lag bigint,
        @feed_id int,
        @shard int,
        @number bigint,
        @held_number bigint;
    -- The positions that long polls wait for, each by an exclusive lock of this session.
    create table #held (feed_id int not null, shard int not null, number bigint not null,
        primary key (feed_id, shard));
    exec changefeed.check_session;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    set @change_count = 0;
    set @max_lag_milliseconds = 0;
    set @iterations = 0;
    if @sweep_group is null or @wait_milliseconds is null or @wait_milliseconds < 0
        or @duration_milliseconds is null or @duration_milliseconds < 0
        or @sleep_milliseconds is null or @sleep_milliseconds not between 1 and 60000
    begin
        set @message = concat('changefeed 77101: sweep_group, wait_milliseconds, duration_milliseconds and ',
            'sleep_milliseconds may not be NULL or negative, and sleep_milliseconds is from 1 to 60000.');
        throw 77101, @message, 1;
    end;
    exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Session',
        @LockTimeout = @wait_milliseconds;
    -- Another session sweeps.
    if @granted < 0 return;
    begin try
        set @began = sysutcdatetime();
        -- @slept ends the loop even if the server's clock is set back.
        while @iterations = 0 or (
            @slept < @duration_milliseconds
            and datediff_big(millisecond, @began, sysutcdatetime()) < @duration_milliseconds
        )
        begin
            exec changefeed.sweep @sweep_group, @count output, @lag output;
            set @iterations = @iterations + 1;
            set @change_count = @change_count + @count;
            if @lag > @max_lag_milliseconds set @max_lag_milliseconds = @lag;

            -- Where a shard has moved on, hold its new position and let go of the one before: readers wake up.
            set @feed_id = -1;
            while @feed_id is not null
            begin
                set @feed_id = null;
                select top (1) @feed_id = s.feed_id, @shard = s.shard, @number = s.last_change_sequence_number,
                    @held_number = h.number
                from changefeed.shard as s
                left join #held as h on h.feed_id = s.feed_id and h.shard = s.shard
                where s.sweep_group = @sweep_group and s.longpoll = 1
                    and (h.number is null or h.number <> s.last_change_sequence_number)
                order by s.feed_id, s.shard;
                if @feed_id is not null
                begin
                    set @resource = concat('changefeed.longpoll/', @feed_id, '/', @shard, '/', @number);
                    exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive',
                        @LockOwner = 'Session', @LockTimeout = 5000;
                    if @granted < 0
                    begin
                        set @message = concat('changefeed 77106: a long poll held its lock of shard ', @shard,
                            ' for more than 5 s. Nothing was lost: try again.');
                        throw 77106, @message, 1;
                    end;
                    if @held_number is not null
                    begin
                        set @resource = concat(
                            'changefeed.longpoll/', @feed_id, '/', @shard, '/', @held_number);
                        exec sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
                        delete from #held where feed_id = @feed_id and shard = @shard;
                    end;
                    insert into #held (feed_id, shard, number) values (@feed_id, @shard, @number);
                end;
            end;
            if @count = 0
            begin
                exec changefeed.sleep @sleep_milliseconds;
                set @slept = @slept + @sleep_milliseconds;
            end;
        end;
    end try
    begin catch
        if @@trancount > 0 rollback transaction;
        exec changefeed.release_sweep @sweep_group;
        throw;
    end catch
    exec changefeed.release_sweep @sweep_group;
end;
go
-- Waits until a change was numbered behind @change_sequence_number, without polling: a sweep_loop holds the
-- lock of the shard's last position until it has numbered more. Returns early where no sweep_loop runs.
create procedure changefeed.longpoll
    @feed_id int, @shard int, @change_sequence_number bigint, @timeout_milliseconds int = 30000
as
begin
    set nocount on;
    set implicit_transactions off;
    declare
        @resource nvarchar(255) = concat(
            'changefeed.longpoll/', @feed_id, '/', @shard, '/', @change_sequence_number),
        @message nvarchar(2048),
        @granted int;
    exec changefeed.check_session;
    if @feed_id is null or @shard is null or @change_sequence_number is null or @timeout_milliseconds is null
        or @timeout_milliseconds < 0
    begin
        set @message = concat('changefeed 77101: feed_id, shard, change_sequence_number and ',
            'timeout_milliseconds may not be NULL, and the timeout not negative.');
        throw 77101, @message, 1;
    end;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    if exists (
        select 1 from changefeed.shard where feed_id = @feed_id and shard = @shard
            and last_change_sequence_number > @change_sequence_number
    )
        return;
    exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Shared', @LockOwner = 'Session',
        @LockTimeout = @timeout_milliseconds;
    if @granted < 0 return;
    exec sp_releaseapplock @Resource = @resource, @LockOwner = 'Session';
    -- Where nobody held it, nobody sweeps: do not let the caller ask without a pause.
    if @granted = 0 and not exists (
        select 1 from changefeed.shard where feed_id = @feed_id and shard = @shard
            and last_change_sequence_number > @change_sequence_number
    )
        exec changefeed.sleep 200;
end;
go
-- Raises where there is no such shard.
create procedure changefeed.check_shard @feed_id int, @shard int as
begin
    set nocount on;
    declare @message nvarchar(2048);
    if not exists (select 1 from changefeed.shard where feed_id = @feed_id and shard = @shard)
    begin
        set @message = concat('changefeed 77101: the feed ', coalesce(cast(@feed_id as varchar(11)), 'NULL'),
            ' has no shard ', coalesce(cast(@shard as varchar(11)), 'NULL'),
            '. Insert it into changefeed.shard, or correct feed_id and shard.');
        throw 77101, @message, 1;
    end;
end;
go
-- The changes of a shard behind the cursor, in order. A page shorter than asked is not the head; an empty one is.
create procedure changefeed.read_changes @feed_id int, @shard int, @cursor bigint, @pagesize int = 100 as
begin
    set nocount on;
    set implicit_transactions off;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    declare @message nvarchar(2048);
    if @cursor is null or @pagesize is null or @pagesize not between 1 and 1000
    begin
        set @message = concat('changefeed 77101: cursor is ', coalesce(cast(@cursor as varchar(20)), 'NULL'),
            ' and pagesize is ', coalesce(cast(@pagesize as varchar(11)), 'NULL'), ': neither may be NULL. ',
            'Start with the cursor 0, and set a pagesize from 1 to 1000.');
        throw 77101, @message, 1;
    end;
    exec changefeed.check_shard @feed_id, @shard;
    if @cursor > (
        select last_change_sequence_number from changefeed.shard where feed_id = @feed_id and shard = @shard
    )
    begin
        set @message = concat('changefeed 77102: the cursor ', @cursor, ' is ahead of the last number given ',
            'in shard ', @shard, ' of the feed ', @feed_id, '. It is of another shard or feed, or the database ',
            'was restored: read again from the position of the restored consumer, or from the beginning.');
        throw 77102, @message, 1;
    end;
    select top (@pagesize) change_id, change_sequence_number from changefeed.change
    where feed_id = @feed_id and shard = @shard and change_sequence_number > @cursor
    order by change_sequence_number;
end;
go
-- Whether a read will find something, so a reader that waits can ask often.
create procedure changefeed.has_changes @feed_id int, @shard int, @cursor bigint as
begin
    set nocount on;
    set implicit_transactions off;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    select case when exists (
        select 1 from changefeed.change
        where feed_id = @feed_id and shard = @shard and change_sequence_number > @cursor
    ) then 1 else 0 end as has_changes;
end;
