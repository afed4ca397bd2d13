-- Bounds what waiting and pruning cost; adds retention, low-water marks, owners of consumers, and
-- pages bounded in bytes.
--
-- Further numbers of errors:
--   77111  the cursor is behind the low-water mark: what follows it was deleted by retention
--   77112  the consumer belongs to another user or role
--
-- How long positions are kept: '30d', '12h' or 'forever'. NULL: nobody has decided, and everything is kept.
alter table changefeed.outbox_feed add keep nvarchar(10) null;
go
-- The last position that was deleted in a shard. A cursor before it would skip events.
create table changefeed.low_water (
    table_name nvarchar(100) not null,
    shard_id int not null,
    ulid binary(16) not null,
    primary key (table_name, shard_id)
);
go
-- Sets how long positions are kept: '30d', '12h' or 'forever'.
create procedure changefeed.set_keep @table nvarchar(300), @keep nvarchar(10) as
begin
    set nocount on;
    declare @message nvarchar(2048);
    if @keep is null or (@keep <> N'forever' and (@keep not like N'[1-9]%[dh]' or len(@keep) > 6
        or substring(@keep, 1, len(@keep) - 1) like N'%[^0-9]%'))
    begin
        set @message = concat('changefeed 77101: keep is ', coalesce(@keep, 'NULL'), '. Set it to a number of days or ',
            'hours, such as 30d or 12h, or to forever.');
        throw 77101, @message, 1;
    end;
    update changefeed.outbox_feed set keep = @keep where table_name = @table;
    if @@rowcount = 0
    begin
        set @message = concat('changefeed 77108: ', @table, ' has no feed.');
        throw 77108, @message, 1;
    end;
end;
go
-- Raises where retention has deleted positions behind the cursor. To be called after the page was read: a later
-- snapshot has every deletion that the page's snapshot had. The cursor of zeros means what is left.
create procedure changefeed.check_low_water @table nvarchar(100), @shard_id int, @cursor binary(16) as
begin
    set nocount on;
    declare @message nvarchar(2048);
    if @cursor <> 0x00000000000000000000000000000000 and exists (
        select 1 from changefeed.low_water where table_name = @table and shard_id = @shard_id and ulid > @cursor
    )
    begin
        set @message = concat('changefeed 77111: the cursor of shard ', @shard_id, ' is behind the low-water mark of ',
            @table, ': retention has deleted positions that it has not read. Rebuild the consumer from the event ',
            'table, or read what is left from the beginning.');
        throw 77111, @message, 1;
    end;
end;
go
-- Deletes up to @rows positions of a shard that are before @before, and that every consumer has read.
--   @deleted  how many; fewer than @rows where there are no more to delete
--   @held_by  the consumer that has not read all of the older ones
create procedure changefeed.prune_shard @table nvarchar(100), @shard_id int, @before binary(16), @rows int,
    @deleted int output, @held_by nvarchar(128) output as
begin
    set nocount on;
    declare @resource nvarchar(255) = concat('changefeed.backfill:', @table), @granted int, @text nvarchar(max),
        @low_water binary(16), @last binary(16);
    -- Not while a backfill lists the rows that are not on the feed, which takes the same lock.
    begin transaction;
    exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
        @LockTimeout = 10000;
    if @granted < 0
    begin
        rollback transaction;
        throw 77106, 'changefeed 77106: another process prunes or backfills this feed. Try again.', 1;
    end;
    set @low_water = coalesce((select ulid from changefeed.low_water where table_name = @table
        and shard_id = @shard_id), 0x00000000000000000000000000000000);
    -- A consumer that has claims in other shards only has read nothing of this one.
    set @text = concat(N'
        declare @read_up_to binary(16), @more int = 0;
        declare @page table (ulid binary(16) not null primary key);
        select top (1) @held_by = a.consumer,
            @read_up_to = coalesce(c.last_ulid, 0x00000000000000000000000000000000)
        from (select distinct consumer from ', changefeed.object_name(N'claim:', @table), N') as a
        left join ', changefeed.object_name(N'claim:', @table), N' as c
            on c.consumer = a.consumer and c.shard_id = @shard_id
        order by coalesce(c.last_ulid, 0x00000000000000000000000000000000), a.consumer;
        insert into @page (ulid)
        select top (@rows) ulid from ', changefeed.object_name(N'feed:', @table), N'
        where shard_id = @shard_id and ulid > @low_water and ulid < @before
            and (@read_up_to is null or ulid <= @read_up_to)
        order by ulid;
        set @deleted = @@rowcount;
        set @last = coalesce((select top (1) ulid from @page order by ulid desc), @low_water);
        delete f from @page as p
        inner loop join ', changefeed.object_name(N'feed:', @table), N' as f with (rowlock, forceseek)
            on f.shard_id = @shard_id and f.ulid = p.ulid
        option (force order);
        if exists (select 1 from ', changefeed.object_name(N'feed:', @table), N'
            where shard_id = @shard_id and ulid > @last and ulid < @before)
            set @more = 1;
        if @more = 0 or @deleted = @rows set @held_by = null;');
    exec sp_executesql @text,
        N'@shard_id int, @before binary(16), @rows int, @low_water binary(16), @deleted int output,
            @last binary(16) output, @held_by nvarchar(128) output',
        @shard_id, @before, @rows, @low_water, @deleted output, @last output, @held_by output;
    if @deleted > 0
    begin
        update changefeed.low_water set ulid = @last where table_name = @table and shard_id = @shard_id;
        if @@rowcount = 0
            insert into changefeed.low_water (table_name, shard_id, ulid) values (@table, @shard_id, @last);
        -- A feed may have been filled by hand, without a last position given: with its rows gone, cursors behind them
        -- would be refused, and later events get positions before them.
        set @text = concat(N'
            update ', changefeed.object_name(N'state:', @table), N' set ulid = @last
            where shard_id = @shard_id and ulid < @last;
            insert into ', changefeed.object_name(N'state:', @table), N' (shard_id, ulid)
            select @shard_id, @last where not exists (
                select 1 from ', changefeed.object_name(N'state:', @table), N' where shard_id = @shard_id);');
        exec sp_executesql @text, N'@shard_id int, @last binary(16)', @shard_id, @last;
    end;
    commit transaction;
end;
go
-- Deletes what the policy of a feed allows. For `retain:`, which readers may call; it has the same owner.
-- Dynamic SQL has the rights of the caller, so this procedure has its owner's.
create procedure changefeed.retain_feed @table nvarchar(100) with execute as owner as
begin
    set nocount on;
    set xact_abort on;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    declare @keep nvarchar(10) = (select keep from changefeed.outbox_feed where table_name = @table),
        @before binary(16), @now bigint, @hours bigint, @shard_id int, @deleted int, @total bigint = 0,
        @held_by nvarchar(128), @text nvarchar(max);
    if @keep is not null and @keep <> N'forever'
    begin
        set @hours = cast(left(@keep, len(@keep) - 1) as bigint) * case right(@keep, 1) when N'd' then 24 else 1 end;
        set @now = datediff_big(millisecond, '1970-01-01', sysutcdatetime());
        set @now = case when @hours * 3600000 > @now then 0 else @now - @hours * 3600000 end;
        set @before = changefeed.ulid(@now, 0, 0);
        set @text = concat(N'set @shard_id = (select min(shard_id) from ', changefeed.object_name(N'feed:', @table),
            N' where @shard_id is null or shard_id > @shard_id)');
        exec sp_executesql @text, N'@shard_id int output', @shard_id output;
        while @shard_id is not null
        begin
            exec changefeed.prune_shard @table, @shard_id, @before, 900, @deleted output, @held_by output;
            set @total = @total + @deleted;
            exec sp_executesql @text, N'@shard_id int output', @shard_id output;
        end;
    end;
    select @total as deleted;
end;
go
-- A consumer belongs to the user that made its first claim: nobody else changes its claims. An owner of the database
-- may.
create procedure changefeed.create_claim_trigger @table nvarchar(100) as
begin
    set nocount on;
    declare @text nvarchar(max) = concat(N'
create trigger changefeed.', quotename(concat(N'check_claim:', @table)), N'
on ', changefeed.object_name(N'claim:', @table), N' after insert, update as
begin
    set nocount on;
    -- Its own update fires it again where the database has RECURSIVE_TRIGGERS on.
    if not exists (select 1 from inserted) return;
    if is_member(N''db_owner'') = 1 or user_name() = N''dbo''
    begin
        update c set role_name = user_name() from ', changefeed.object_name(N'claim:', @table), N' as c
        inner join inserted as i on i.consumer = c.consumer and i.shard_id = c.shard_id where c.role_name is null;
        return;
    end;
    if exists (
        select 1 from ', changefeed.object_name(N'claim:', @table), N' as c
        inner join inserted as i on i.consumer = c.consumer
        where c.role_name is not null and c.role_name <> user_name()
            and coalesce(is_rolemember(c.role_name), 0) = 0
    ) or exists (
        select 1 from deleted as d
        where d.role_name is not null and d.role_name <> user_name() and coalesce(is_rolemember(d.role_name), 0) = 0
    )
    begin
        declare @message nvarchar(2048) = concat(''changefeed 77112: the consumer belongs to another user or role. '',
            ''Connect as that one, or choose another name for the consumer.'');
        throw 77112, @message, 1;
    end;
    update c set role_name = coalesce(d.role_name, user_name())
    from ', changefeed.object_name(N'claim:', @table), N' as c
    inner join inserted as i on i.consumer = c.consumer and i.shard_id = c.shard_id
    left join deleted as d on d.consumer = c.consumer and d.shard_id = c.shard_id
    where c.role_name is null or c.role_name <> coalesce(d.role_name, user_name());
end');
    exec (@text);
end;
go
-- Creates the procedures of a feed, for setup_feed and for migrations that change them.
drop procedure changefeed.create_procedures;
go
create procedure changefeed.create_procedures @table nvarchar(100) as
begin
    set nocount on;
    declare
        @events nvarchar(300) = changefeed.event_table(@table),
        @readers nvarchar(128) = concat('changefeed.readers:', @table),
        @columns nvarchar(max) = N'',
        @definitions nvarchar(max) = N'',
        @of_outbox nvarchar(max) = N'',
        @of_taken nvarchar(max) = N'',
        @of_read nvarchar(max) = N'',
        @joined nvarchar(max) = N'',
        @first nvarchar(300),
        @bytes nvarchar(max) = N'',
        @principal nvarchar(128) = N'public',
        -- In names, braces are replaced until all placeholders have been expanded.
        @brace nchar(1) = nchar(57344),
        @place int = 1,
        @keys int = 0,
        @column nvarchar(300),
        @definition nvarchar(500);

    if @table like concat(N'%', @brace, N'%') collate Latin1_General_BIN2
        throw 77101, 'changefeed 77101: the name of the table has the character U+E000. Rename the table.', 1;
    if exists (select 1 from sys.database_principals where name = @readers and type = 'R')
        set @principal = @readers;
    -- The size of a row as it is stored. Columns that are added later count from the next call of this procedure on.
    select @bytes = @bytes + concat(N' + coalesce(datalength(e.', quotename(name), N'), 0)')
    from sys.columns where object_id = object_id(@events);
    select @keys = count(*) from changefeed.key_column(object_id(@events));
    while @place <= @keys
    begin
        select @column = quotename(name), @definition = written_type
        from changefeed.key_column(object_id(@events)) where place = @place;
        if @place = 1 set @first = @column;
        set @columns = concat(@columns, N', ', @column);
        set @definitions = concat(@definitions, N', ', @column, N' ', @definition, N' not null');
        set @of_outbox = concat(@of_outbox, N', o.', @column);
        set @of_taken = concat(@of_taken, N', t.', @column);
        set @of_read = concat(@of_read, N', r.', @column);
        if @place > 1 set @joined = concat(@joined, N' and ');
        set @joined = concat(@joined, N'e.', @column, N' = r.', @column);
        set @place = @place + 1;
    end;

    declare @text nvarchar(max), @routine nvarchar(300), @dropping nvarchar(400), @procedure int = 1;
    while @procedure <= 5
    begin
        set @text = case @procedure when 2 then N'
create procedure {read_feed} @shard_id int, @cursor binary(16), @pagesize int = 100 as
begin
    set nocount on;
    -- Session settings are inherited. This one comes first: with it on, any statement would open a transaction.
    set implicit_transactions off;
    exec changefeed.check_read @shard_id, @cursor, @pagesize;
    set xact_abort on;
    set transaction isolation level read committed;
    set lock_timeout 10000;
    declare @start binary(16) = 0x00000000000000000000000000000000, @last binary(16), @message nvarchar(2048);
    begin try
        insert into #read (ulid{columns})
        select top (@pagesize) ulid{columns} from {feed}
        where shard_id = @shard_id and ulid > @cursor order by ulid;
        if @@rowcount > 0
        begin
            exec changefeed.check_low_water N''{table}'', @shard_id, @cursor;
            return;
        end;

        -- Nothing new in the feed. A feed may have been filled by hand: its last position counts too.
        set @last = (select top (1) p.ulid from (
            select ulid from {state} where shard_id = @shard_id
            union all
            select * from (select top (1) ulid from {feed} where shard_id = @shard_id order by ulid desc) as f
        ) as p order by p.ulid desc);
        if @cursor > coalesce(@last, @start)
        begin
            set @message = concat(''changefeed 77102: the cursor is ahead of the last position given in '',
                ''shard '', @shard_id, '' of {table}. It is of another shard or feed, or the database was '',
                ''restored: read again from the position of the restored consumer, or from the beginning.'');
            throw 77102, @message, 1;
        end;
        exec changefeed.check_low_water N''{table}'', @shard_id, @cursor;
        -- An idle poll takes no lock.
        if exists (select 1 from {outbox} where shard_id = @shard_id)
            exec {number} @shard_id, @cursor, @pagesize;

        insert into #read (ulid{columns})
        select top (@pagesize) ulid{columns} from {feed}
        where shard_id = @shard_id and ulid > @cursor order by ulid;
        -- While this one waited for its turn, others may have numbered and deleted.
        exec changefeed.check_low_water N''{table}'', @shard_id, @cursor;
    end try
    begin catch
        if @@trancount > 0 rollback transaction;
        if error_number() = 1222
        begin
            set @message = concat(''changefeed 77106: another session holds a lock of the feed of {table}. '',
                ''Nothing was changed. Try again.'');
            throw 77106, @message, 1;
        end;
        throw;
    end catch
end' when 1 then N'
-- Gives positions to the first @pagesize committed rows of the outbox, unless another reader has done so.
-- For read_feed only, which has set what it requires of the session.
create procedure {number} @shard_id int, @cursor binary(16), @pagesize int as
begin
    set nocount on;
    declare
        @resource nvarchar(255) = concat(''changefeed.feed:{table}/'', @shard_id),
        @message nvarchar(2048),
        @granted int,
        @last binary(16),
        @last_ms bigint,
        @last_random bigint,
        @last_counter bigint,
        @now bigint,
        @counters bigint = 1099511627776,
        @first_counters bigint = 549755813888;
    declare @taken table (order_sequence bigint not null primary key, order_position int not null,
        order_ms bigint not null{definitions});
    declare @moment table (ms bigint not null primary key, first_position int not null, random bigint not null,
        counter bigint not null);

    begin transaction;
    exec @granted = sp_getapplock @Resource = @resource, @LockMode = ''Exclusive'',
        @LockOwner = ''Transaction'', @LockTimeout = 10000{principal};
    if @granted < 0
    begin
        set @message = concat(''changefeed 77106: another reader holds the lock of shard '', @shard_id,
            '' of {table}. Nothing was changed. Try again.'');
        throw 77106, @message, 1;
    end;
    -- Until the commit, nobody else writes the feed of this shard. Each statement has a new snapshot.
    if not exists (select 1 from {feed} where shard_id = @shard_id and ulid > @cursor)
    begin
        set @last = (select top (1) p.ulid from (
            select ulid from {state} where shard_id = @shard_id
            union all
            select * from (select top (1) ulid from {feed} where shard_id = @shard_id order by ulid desc) as f
        ) as p order by p.ulid desc);
        set @last = coalesce(@last, 0x00000000000000000000000000000000);
        set @last_ms = cast(substring(@last, 1, 6) as bigint);
        set @last_random = cast(substring(@last, 7, 5) as bigint);
        set @last_counter = cast(substring(@last, 12, 5) as bigint);
        if @last_counter + @pagesize >= @counters
        begin
            -- The counter is spent: the next millisecond, which gets a number of its own below.
            set @last_ms = @last_ms + 1;
            set @last_random = null;
        end;
        set @now = datediff_big(millisecond, ''1970-01-01'', sysutcdatetime());

        -- One SELECT, so one snapshot: where it has a transaction, it has every one that was committed before
        -- that one began. Their own numbers were drawn within transactions, so they order what it has.
        insert into @taken (order_sequence, order_position, order_ms{columns})
        select o.order_sequence, row_number() over (order by o.order_sequence),
            max(case when @now <= @last_ms or o.hint_ms <= @last_ms then @last_ms
                when o.hint_ms < @now then o.hint_ms else @now end)
                over (order by o.order_sequence rows unbounded preceding){of_outbox}
        from (
            select top (@pagesize) order_sequence{columns},
                datediff_big(millisecond, ''1970-01-01'', time_hint) as hint_ms
            from {outbox} where shard_id = @shard_id order by order_sequence
        ) as o;

        if exists (select 1 from @taken)
        begin
            insert into @moment (ms, first_position, random, counter)
            select order_ms, min(order_position), 0, 0 from @taken group by order_ms;
            -- The last six bytes of newid() are random; the others have its version and variant.
            update @moment set random = cast(substring(cast(newid() as binary(16)), 12, 5) as bigint),
                counter = cast(substring(cast(newid() as binary(16)), 12, 5) as bigint) % @first_counters;
            if @last_random is not null
                update @moment set random = @last_random, counter = @last_counter + 1 where ms = @last_ms;

            insert into {feed} (shard_id, ulid{columns})
            select @shard_id,
                changefeed.ulid(m.ms, m.random, m.counter + t.order_position - m.first_position){of_taken}
            from @taken as t inner join @moment as m on m.ms = t.order_ms
            order by t.order_position;

            -- By key and with a seek: a scan would wait for open writers. The hints serve speed alone.
            delete o from @taken as t
            inner loop join {outbox} as o with (rowlock, forceseek)
                on o.shard_id = @shard_id and o.order_sequence = t.order_sequence
            option (force order);

            set @last = (select top (1) ulid from {feed} where shard_id = @shard_id order by ulid desc);
            update {state} set ulid = @last where shard_id = @shard_id;
            if @@rowcount = 0
                insert into {state} (shard_id, ulid) values (@shard_id, @last);
        end;
    end;
    commit transaction;
end' when 3 then N'
-- A page with its events, in one round trip: ulid, whether the event is missing, the number of columns of the
-- key, the key, and the columns of the event table.
create procedure {read_events}
    @shard_id int, @cursor binary(16), @pagesize int = 100, @maxbytes bigint = null as
begin
    set nocount on;
    set implicit_transactions off;
    set transaction isolation level read committed;
    declare @last binary(16);
    create table #read (ulid binary(16) not null primary key{definitions});
    exec {read_feed} @shard_id, @cursor, @pagesize;
    -- The page ends before its events exceed @maxbytes, but has one event at least.
    if @maxbytes is not null
    begin
        set @last = (
            select top (1) s.ulid from (
                select r.ulid, sum(cast(0 as bigint){bytes}) over (order by r.ulid rows unbounded preceding) as bytes,
                    row_number() over (order by r.ulid) as place
                from #read as r left join {events} as e on {joined}
            ) as s where s.bytes <= @maxbytes or s.place = 1 order by s.ulid desc
        );
        delete from #read where ulid > @last;
    end;
    select r.ulid, case when e.{first} is null then 1 else 0 end as missing, {keys} as key_columns{of_read}, e.*
    from #read as r left join {events} as e on {joined}
    order by r.ulid;
end' when 4 then N'
-- Whether a read may find something, or would refuse the cursor; it takes no lock.
create procedure {has_news} @shard_id int, @cursor binary(16) as
begin
    set nocount on;
    set implicit_transactions off;
    set transaction isolation level read committed;
    declare
        @start binary(16) = 0x00000000000000000000000000000000,
        @last_of_feed binary(16) = (select top (1) ulid from {feed} where shard_id = @shard_id order by ulid desc),
        @last binary(16) = (select ulid from {state} where shard_id = @shard_id),
        @low_water binary(16) = (
            select ulid from changefeed.low_water where table_name = N''{table}'' and shard_id = @shard_id);
    select case when @last_of_feed > @cursor
        or exists (select 1 from {outbox} where shard_id = @shard_id)
        or (@cursor > coalesce(@last, @start) and @cursor > coalesce(@last_of_feed, @start))
        or (@cursor <> @start and @cursor < @low_water) then 1 else 0 end as has_news;
end' else N'
-- Deletes what the policy of the feed allows, at most 900 rows of each shard, and returns how many. It has no
-- parameters, and so deletes nothing else.
create procedure {retain} as
begin
    set nocount on;
    set implicit_transactions off;
    exec changefeed.retain_feed N''{table}'';
end' end;
        set @text = replace(@text, N'{table}', replace(replace(@table, N'''', N''''''), N'{', @brace));
        set @text = replace(@text, N'{read_feed}',
            replace(changefeed.object_name(N'read_feed:', @table), N'{', @brace));
        set @text = replace(@text, N'{read_events}',
            replace(changefeed.object_name(N'read_events:', @table), N'{', @brace));
        set @text = replace(@text, N'{has_news}', replace(changefeed.object_name(N'has_news:', @table), N'{', @brace));
        set @text = replace(@text, N'{number}', replace(changefeed.object_name(N'number:', @table), N'{', @brace));
        set @text = replace(@text, N'{retain}', replace(changefeed.object_name(N'retain:', @table), N'{', @brace));
        set @text = replace(@text, N'{outbox}', replace(changefeed.object_name(N'outbox:', @table), N'{', @brace));
        set @text = replace(@text, N'{feed}', replace(changefeed.object_name(N'feed:', @table), N'{', @brace));
        set @text = replace(@text, N'{state}', replace(changefeed.object_name(N'state:', @table), N'{', @brace));
        set @text = replace(@text, N'{events}', replace(@events, N'{', @brace));
        set @text = replace(@text, N'{columns}', replace(@columns, N'{', @brace));
        set @text = replace(@text, N'{definitions}', replace(@definitions, N'{', @brace));
        set @text = replace(@text, N'{of_outbox}', replace(@of_outbox, N'{', @brace));
        set @text = replace(@text, N'{of_taken}', replace(@of_taken, N'{', @brace));
        set @text = replace(@text, N'{of_read}', replace(@of_read, N'{', @brace));
        set @text = replace(@text, N'{joined}', replace(@joined, N'{', @brace));
        set @text = replace(@text, N'{first}', replace(@first, N'{', @brace));
        set @text = replace(@text, N'{bytes}', replace(@bytes, N'{', @brace));
        set @text = replace(@text, N'{keys}', replace(cast(@keys as nvarchar(10)), N'{', @brace));
        set @text = replace(@text, N'{principal}',
            replace(case
            when serverproperty('Babelfish') = 1 then N''
            else concat(N', @DbPrincipal = N''', replace(@principal, N'''', N''''''), N'''') end, N'{', @brace));
        set @text = replace(@text collate Latin1_General_BIN2, @brace, N'{');
        set @routine = changefeed.object_name(
            case @procedure
                when 1 then N'number:' when 2 then N'read_feed:' when 3 then N'read_events:'
                when 4 then N'has_news:' else N'retain:'
            end, @table);
        if object_id(@routine, 'P') is not null
        begin
            set @dropping = concat(N'drop procedure ', @routine);
            exec (@dropping);
        end;
        exec (@text);
        -- Readers call `number:` through read_feed, which has the same owner; in Babelfish they need the right.
        if (@procedure > 1 or serverproperty('Babelfish') = 1)
            and exists (select 1 from sys.database_principals where name = @readers and type = 'R')
        begin
            set @text = concat(N'grant execute on ', @routine, N' to ', quotename(@readers));
            exec (@text);
        end;
        set @procedure = @procedure + 1;
    end;
end;
go
-- As in the first migration, with @keep: how long positions are kept, or NULL if that is not decided yet.
drop procedure changefeed.setup_feed;
go
create procedure changefeed.setup_feed @table nvarchar(300), @outbox bit = 0, @roles bit = 1,
    @keep nvarchar(10) = null as
begin
    set nocount on;
    declare @message nvarchar(2048), @dot int = charindex('.', @table);
    if @outbox is null or @outbox = 0
    begin
        set @message = concat('changefeed 77101: a feed without an outbox is not supported. ',
            'Call changefeed.setup_feed with @outbox = 1.');
        throw 77101, @message, 1;
    end;
    if @table is null or @dot < 2 or @dot = len(@table) or len(@table) > 100
    begin
        set @message = concat('changefeed 77101: there is no table ', left(coalesce(@table, 'NULL'), 100),
            '. Name it as schema.Table, without quotes and with 100 characters at most.');
        throw 77101, @message, 1;
    end;
    declare
        @events nvarchar(300) = changefeed.event_table(@table),
        @outbox_table nvarchar(300) = changefeed.object_name(N'outbox:', @table),
        @feed_table nvarchar(300) = changefeed.object_name(N'feed:', @table),
        @state_table nvarchar(300) = changefeed.object_name(N'state:', @table),
        @claim_table nvarchar(300) = changefeed.object_name(N'claim:', @table),
        @readers nvarchar(300) = quotename(concat('changefeed.readers:', @table)),
        @writers nvarchar(300) = quotename(concat('changefeed.writers:', @table)),
        @definitions nvarchar(max) = N'',
        @place int = 1,
        @keys int,
        @text nvarchar(max);
    if object_id(@events, 'U') is null
    begin
        set @message = concat('changefeed 77101: there is no table ', @table, ', or you may not see it. ',
            'Name it as schema.Table, without quotes.');
        throw 77101, @message, 1;
    end;
    if exists (select 1 from changefeed.outbox_feed where table_name = @table)
    begin
        set @message = concat('changefeed 77109: ', @table, ' has a feed already.');
        throw 77109, @message, 1;
    end;
    select @keys = count(*) from changefeed.key_column(object_id(@events));
    if @keys = 0
    begin
        set @message = concat('changefeed 77101: the table ', @table, ' has no primary key. Add one: ',
            'outbox and feed refer to events by it.');
        throw 77101, @message, 1;
    end;
    if exists (
        select 1 from changefeed.key_column(object_id(@events)) where lower(name) in
            ('shard_id', 'order_sequence', 'time_hint', 'ulid', 'order_position', 'order_ms', 'hint_ms')
    )
    begin
        set @message = concat('changefeed 77101: the primary key of ', @table, ' has a column that the feed ',
            'needs for itself. Rename shard_id, order_sequence, time_hint, ulid, order_position, order_ms and ',
            'hint_ms in it.');
        throw 77101, @message, 1;
    end;
    while @place <= @keys
    begin
        select @definitions = concat(@definitions, N', ', quotename(name), N' ', written_type, N' not null')
        from changefeed.key_column(object_id(@events)) where place = @place;
        set @place = @place + 1;
    end;

    -- Not before the checks: with it on, their errors would end the caller's transaction.
    set xact_abort on;
    begin transaction;
    insert into changefeed.outbox_feed (table_name) values (@table);
    if @keep is not null exec changefeed.set_keep @table, @keep;
    -- An identity is cached by the whole server, and not by each session: its order is that of the inserts.
    set @text = concat(N'create table ', @outbox_table, N' (
        shard_id int not null,
        order_sequence bigint identity(1, 1) not null,
        time_hint datetime2(3) not null default (sysutcdatetime())', @definitions, N',
        primary key (shard_id, order_sequence))');
    exec (@text);
    set @text = concat(N'create table ', @feed_table, N' (
        shard_id int not null,
        ulid binary(16) not null', @definitions, N',
        primary key (shard_id, ulid))');
    exec (@text);
    set @text = concat(N'create table ', @state_table, N' (
        shard_id int not null primary key,
        ulid binary(16) not null)');
    exec (@text);
    -- Named consumers: how far each has come, and who reads for it. Python changes these rows, each by one
    -- statement.
    set @text = concat(N'create table ', @claim_table, N' (
        consumer nvarchar(128) collate Latin1_General_BIN2 not null,
        shard_id int not null,
        last_ulid binary(16) not null default (0x00000000000000000000000000000000),
        stored_at datetime2(3) null,
        owner nvarchar(400) null,
        epoch bigint not null default (0),
        renewals bigint not null default (0),
        wanted_by nvarchar(400) null,
        role_name nvarchar(128) null,
        primary key (consumer, shard_id))');
    exec (@text);
    exec changefeed.create_claim_trigger @table;
    if @roles = 1
    begin
        set @text = concat(N'create role ', @writers);
        exec (@text);
        set @text = concat(N'create role ', @readers);
        exec (@text);
        set @text = concat(N'grant insert on ', @outbox_table, N' to ', @writers);
        exec (@text);
        set @text = concat(N'grant select on ', @events, N' to ', @readers);
        exec (@text);
        set @text = concat(N'grant select, insert, update on ', @claim_table, N' to ', @readers);
        exec (@text);
        -- In Babelfish, readers need rights of their own for what read_feed does.
        if serverproperty('Babelfish') = 1
        begin
            set @text = concat(N'grant select, delete on ', @outbox_table, N' to ', @readers);
            exec (@text);
            set @text = concat(N'grant select, insert on ', @feed_table, N' to ', @readers);
            exec (@text);
            set @text = concat(N'grant select, insert, update on ', @state_table, N' to ', @readers);
            exec (@text);
            set @text = concat(N'grant select on changefeed.low_water to ', @readers);
            exec (@text);
        end;
    end;
    exec changefeed.create_procedures @table;
    commit transaction;
end;
go
drop procedure changefeed.drop_feed;
go
create procedure changefeed.drop_feed @table nvarchar(300) as
begin
    set nocount on;
    declare
        @message nvarchar(2048),
        @name nvarchar(300),
        @text nvarchar(max),
        @role nvarchar(128),
        @member nvarchar(128),
        @place int = 1;
    if not exists (select 1 from changefeed.outbox_feed where table_name = @table)
    begin
        set @message = concat('changefeed 77108: ', @table, ' has no feed. ',
            'See the feeds there are in changefeed.outbox_feed.');
        throw 77108, @message, 1;
    end;
    set xact_abort on;
    begin transaction;
    delete from changefeed.low_water where table_name = @table;
    delete from changefeed.outbox_feed where table_name = @table;
    if object_id(changefeed.object_name(N'backfill:', @table), 'U') is not null
    begin
        set @text = concat(N'drop table ', changefeed.object_name(N'backfill:', @table));
        exec (@text);
    end;
    while @place <= 9
    begin
        set @name = changefeed.object_name(
            case @place
                when 1 then N'read_events:' when 2 then N'read_feed:' when 3 then N'number:'
                when 4 then N'has_news:' when 5 then N'retain:' when 6 then N'outbox:'
                when 7 then N'feed:' when 8 then N'state:' else N'claim:'
            end, @table);
        set @text = concat(case when @place <= 5 then N'drop procedure ' else N'drop table ' end, @name);
        -- Where the event table was gone before an upgrade, the feed has not got the procedures of that version.
        if object_id(@name) is not null exec (@text);
        set @place = @place + 1;
    end;
    set @place = 1;
    while @place <= 2
    begin
        set @role = concat(
            case @place when 1 then 'changefeed.writers:' else 'changefeed.readers:' end, @table);
        if exists (select 1 from sys.database_principals where name = @role and type = 'R')
        begin
            if @place = 2 and object_id(changefeed.event_table(@table)) is not null
            begin
                set @text = concat(N'revoke select on ', changefeed.event_table(@table), N' from ',
                    quotename(@role));
                exec (@text);
            end;
            set @member = N'';
            while @member is not null
            begin
                set @member = (
                    select top (1) m.name from sys.database_role_members as r
                    inner join sys.database_principals as g on g.principal_id = r.role_principal_id
                    inner join sys.database_principals as m on m.principal_id = r.member_principal_id
                    where g.name = @role order by m.name
                );
                if @member is not null
                begin
                    set @text = concat(N'alter role ', quotename(@role), N' drop member ', quotename(@member));
                    exec (@text);
                end;
            end;
            set @text = concat(N'drop role ', quotename(@role));
            exec (@text);
        end;
        set @place = @place + 1;
    end;
    commit transaction;
end;
go
-- The lock is the shard's and not the group's: a shard may move from one group to another.
drop procedure changefeed.sweep_shard;
go
create procedure changefeed.sweep_shard
    @sweep_group int, @feed_id int, @shard int, @change_count int output, @max_lag_milliseconds bigint output
as
begin
    set nocount on;
    declare
        @resource nvarchar(255) = concat('changefeed.sweep/', @feed_id, '/', @shard),
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
        set @message = concat('changefeed 77106: another session swept shard ', @shard, ' of the feed ', @feed_id,
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
-- Feeds that were set up by an earlier version.
declare @table nvarchar(100) = N'', @text nvarchar(max);
while @table is not null
begin
    set @table = (select min(table_name) from changefeed.outbox_feed where table_name > @table);
    if @table is not null
    begin
        set @text = concat(N'alter table ', changefeed.object_name(N'claim:', @table),
            N' add role_name nvarchar(128) null');
        exec (@text);
        exec changefeed.create_claim_trigger @table;
        if object_id(changefeed.event_table(@table), 'U') is not null
            exec changefeed.create_procedures @table;
        if serverproperty('Babelfish') = 1 and exists (
            select 1 from sys.database_principals where name = concat('changefeed.readers:', @table) and type = 'R')
        begin
            set @text = concat(N'grant select on changefeed.low_water to ',
                quotename(concat('changefeed.readers:', @table)));
            exec (@text);
        end;
    end;
end;
go
if serverproperty('Babelfish') = 1
begin
    exec (N'grant execute on changefeed.check_low_water to public');
end;
