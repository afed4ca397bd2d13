-- The schema changefeed, for SQL Server 2016 and later, Azure SQL, and Babelfish for PostgreSQL 4.4 and later: feeds in
-- outbox mode, and of numbered changes (generation 1).
--
-- Every error raised here starts with its number, as in "changefeed 77102: …". The numbers are stable:
--   77101  an argument is out of its bounds, or the table cannot have a feed
--   77102  the cursor is ahead of the feed: another shard's or feed's, or the database was restored
--   77103  the session has an open transaction
--   77104  READ_COMMITTED_SNAPSHOT is off in this database
--   77105  the sequence changefeed.change_id has a cache
--   77106  another session held a lock for too long: nothing was changed, try again
--   77107  the temporary table #read is missing
--   77108  the table has no feed
--   77109  the table has a feed already
--   77110  the engine converts text to binary(16) in another way than SQL Server does
--   77111  the cursor is behind the low-water mark: what follows it was deleted by retention
--   77112  the consumer belongs to another user or role
--
-- The statements keep to what all three engines execute alike. In particular:
--   * no arithmetic on binary values and no style of CONVERT: Babelfish adds where SQL Server concatenates, and
--     ignores styles. A ULID is made from text by way of uniqueidentifier, whose layout both share.
--   * correctness rests on no lock hint: Babelfish ignores them. Rows are taken by one SELECT: where its
--     snapshot has a transaction, it has every one that was committed before that one began. Without
--     READ_COMMITTED_SNAPSHOT a scan is no snapshot, so it is required.

-- Tables
-- ------

-- `keep` is how long positions are kept: '30d', '12h' or 'forever'. NULL: nobody has decided, and everything is kept.
create table changefeed.outbox_feed (
    table_name nvarchar(100) not null primary key,
    set_up_at datetime2(3) not null default (sysutcdatetime()),
    keep nvarchar(10) null
);
go
-- The last position that was deleted in a shard. A cursor before it would skip events.
create table changefeed.low_water (
    table_name nvarchar(100) not null,
    shard_id int not null,
    ulid binary(16) not null,
    primary key (table_name, shard_id)
);
go
-- Positions and names
-- -------------------

-- The last 48 bits of a number as 12 hexadecimal digits. A literal above int would be a decimal.
create function changefeed.hex(@number bigint) returns char(12) with schemabinding as
begin
    declare @digits char(16) = '0123456789abcdef';
    return substring(@digits, cast(@number / 268435456 / 65536 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 268435456 / 4096 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 268435456 / 256 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 268435456 / 16 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 268435456 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 16777216 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 1048576 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 65536 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 4096 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 256 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number / 16 % 16 as int) + 1, 1)
        + substring(@digits, cast(@number % 16 as int) + 1, 1);
end;
go
-- A ULID of 48 bits of time in milliseconds, 40 random bits and a counter of 40 bits. binary(16) compares byte
-- by byte. uniqueidentifier stores the first 4, the next 2 and the next 2 bytes of its text in reverse order.
create function changefeed.ulid(@ms bigint, @random bigint, @counter bigint)
returns binary(16) with schemabinding as
begin
    declare @time char(12) = changefeed.hex(@ms), @middle char(12) = changefeed.hex(@random);
    return cast(cast(
        substring(@time, 7, 2) + substring(@time, 5, 2)
        + substring(@time, 3, 2) + substring(@time, 1, 2)
        + '-' + substring(@time, 11, 2) + substring(@time, 9, 2)
        + '-' + substring(@middle, 5, 2) + substring(@middle, 3, 2)
        + '-' + substring(@middle, 7, 4)
        + '-' + substring(@middle, 11, 2) + substring(changefeed.hex(@counter), 3, 10)
        as uniqueidentifier) as binary(16));
end;
go
declare @made binary(16) = changefeed.ulid(1108152157446, 30199581195, 603670351760);
if @made <> 0x0102030405060708090A0B8C8D8E8F90 or cast(substring(@made, 1, 6) as bigint) <> 1108152157446
    throw 77110, 'changefeed 77110: this engine lays out uniqueidentifier differently from SQL Server', 1;
go
-- The quoted name of a feed's table or procedure.
create function changefeed.object_name(@kind nvarchar(20), @table nvarchar(100)) returns nvarchar(300) as
begin
    return concat(N'changefeed.', quotename(concat(@kind, @table)));
end;
go
-- The quoted name of the event table, from schema.Table.
create function changefeed.event_table(@table nvarchar(100)) returns nvarchar(300) as
begin
    return concat(quotename(left(@table, charindex('.', @table) - 1)), '.',
        quotename(substring(@table, charindex('.', @table) + 1, 100)));
end;
go
-- The columns of a table's primary key, with their types as they are written.
create function changefeed.key_column(@table int) returns table as
return (
    select k.key_ordinal as place, c.name,
        concat(
            case t.name when 'timestamp' then 'binary' else t.name end,
            case
                when t.name = 'timestamp' then '(8)'
                when t.name in ('char', 'varchar', 'binary', 'varbinary') then concat('(', c.max_length, ')')
                when t.name in ('nchar', 'nvarchar') then concat('(', c.max_length / 2, ')')
                when t.name in ('decimal', 'numeric') then concat('(', c.[precision], ', ', c.scale, ')')
                when t.name in ('time', 'datetime2', 'datetimeoffset') then concat('(', c.scale, ')')
            end,
            case when c.collation_name is not null then concat(' collate ', c.collation_name) end
        ) as written_type
    from sys.indexes as i
    inner join sys.index_columns as k on k.object_id = i.object_id and k.index_id = i.index_id
    inner join sys.columns as c on c.object_id = k.object_id and c.column_id = k.column_id
    -- An alias type is written as what it is of; the CLR types, such as hierarchyid, share a system_type_id.
    inner join sys.types as t
        on t.user_type_id = case when c.system_type_id = 240 then c.user_type_id else c.system_type_id end
    where i.object_id = @table and i.is_primary_key = 1 and k.key_ordinal > 0
);
go
-- Reading
-- -------

-- What reads and sweeps require of the session and the database. It changes no setting, so the caller's open
-- transaction survives the error.
create procedure changefeed.check_session as
begin
    set nocount on;
    declare @message nvarchar(2048);
    if @@trancount > 0
    begin
        set @message = concat('changefeed 77103: the session has an open transaction. Commit it before you ',
            'read, and read with autocommit on (IMPLICIT_TRANSACTIONS off).');
        throw 77103, @message, 1;
    end;
    -- By name: in an elastic pool, db_id() is not the database_id of this view.
    if not exists (select 1 from sys.databases where name = db_name() and is_read_committed_snapshot_on = 1)
    begin
        set @message = concat('changefeed 77104: READ_COMMITTED_SNAPSHOT is off, so a scan would miss events. ',
            'Turn it on: ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE.');
        throw 77104, @message, 1;
    end;
end;
go
-- What every read requires.
create procedure changefeed.check_read @shard_id int, @cursor binary(16), @pagesize int as
begin
    set nocount on;
    declare @message nvarchar(2048);
    exec changefeed.check_session;
    if @shard_id is null or @cursor is null or @pagesize is null or @pagesize not between 1 and 1000
    begin
        set @message = concat('changefeed 77101: shard_id is ',
            coalesce(cast(@shard_id as varchar(11)), 'NULL'),
            ', cursor is ', case when @cursor is null then 'NULL' else 'not NULL' end,
            ' and pagesize is ', coalesce(cast(@pagesize as varchar(11)), 'NULL'), ': none may be NULL. ',
            'Start with the cursor 0x00000000000000000000000000000000, and set a pagesize from 1 to 1000.');
        throw 77101, @message, 1;
    end;
    if object_id('tempdb..#read') is null
    begin
        set @message = concat('changefeed 77107: there is no temporary table #read. Create it first, with the ',
            'column ulid binary(16) and those of the primary key.');
        throw 77107, @message, 1;
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
-- SQL Server checks no right of the caller where a procedure has the same owner as what it uses. Babelfish does.
if serverproperty('Babelfish') = 1
begin
    exec (N'grant execute on changefeed.check_session to public');
    exec (N'grant execute on changefeed.check_read to public');
    exec (N'grant execute on changefeed.check_low_water to public');
    exec (N'grant execute on changefeed.hex to public');
    exec (N'grant execute on changefeed.ulid to public');
end;
go
-- Creates the procedures of a feed, or creates them again.
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
-- Consumers and retention
-- -----------------------

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
        -- Never back: where names are compared without case, another one's lock may be of another name.
        update changefeed.low_water set ulid = @last
        where table_name = @table and shard_id = @shard_id and ulid < @last;
        insert into changefeed.low_water (table_name, shard_id, ulid)
        select @table, @shard_id, @last where not exists (
            select 1 from changefeed.low_water where table_name = @table and shard_id = @shard_id);
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
-- It refuses an open transaction before XACT_ABORT could doom it.
create procedure changefeed.retain_feed @table nvarchar(100) with execute as owner as
begin
    set nocount on;
    exec changefeed.check_session;
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
-- Setting up and dropping
-- -----------------------

-- Sets up the feed of a table that has a primary key.
--   @table   schema.Table, without quotes
--   @outbox  only 1 is supported
--   @roles   whether the roles [changefeed.writers:schema.Table] and [changefeed.readers:schema.Table] are made
--   @keep    how long positions are kept: '30d', '12h' or 'forever'; NULL if that is not decided yet
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
-- Removes a feed: what is in its outbox and what was numbered. The event table stays.
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
        -- A feed that lacks some of them can be dropped, too.
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
-- Generation 1: feeds of numbered changes
-- ---------------------------------------

-- Writers insert into changefeed.change, and one session a group numbers what was committed.
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
-- A trigger checks that the shard exists. The check of a foreign key to changefeed.shard would wait for the sweeper,
-- which updates that row.
create table changefeed.change (
    feed_id int not null,
    shard int not null,
    change_id bigint not null,
    change_sequence_number bigint null,
    inserted_at datetime2(3) not null default (sysutcdatetime()),
    primary key (feed_id, shard, change_id)
);
go
-- Under SERIALIZABLE or REPEATABLE READ, a plain read of changefeed.shard holds a lock until the writer commits, and a
-- sweep, which updates that row, waits for it. READCOMMITTED reads a version of the row, since the database has
-- READ_COMMITTED_SNAPSHOT on.
create trigger changefeed.known_shard on changefeed.change after insert as
begin
    set nocount on;
    if exists (
        select 1 from inserted as i
        where not exists (
            select 1 from changefeed.shard as s with (readcommitted)
            where s.feed_id = i.feed_id and s.shard = i.shard
        )
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
-- The lock is the shard's and not the group's: a shard may move from one group to another.
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
    -- One SELECT, so one snapshot: see number: of create_procedures. An UPDATE would wait for open writers.
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
