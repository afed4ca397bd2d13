-- Feeds in outbox mode, for SQL Server 2016 and later, Azure SQL, and Babelfish for PostgreSQL 4.4 and later.
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
--
-- The statements keep to what all three engines execute alike. In particular:
--   * no arithmetic on binary values and no style of CONVERT: Babelfish adds where SQL Server concatenates, and
--     ignores styles. A ULID is made from text by way of uniqueidentifier, whose layout both share.
--   * correctness rests on no lock hint: Babelfish ignores them. Rows are taken by one SELECT: where its
--     snapshot has a transaction, it has every one that was committed before that one began. Without
--     READ_COMMITTED_SNAPSHOT a scan is no snapshot, so it is required.
create table changefeed.outbox_feed (
    table_name nvarchar(100) not null primary key,
    set_up_at datetime2(3) not null default (sysutcdatetime())
);
go
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
-- SQL Server checks no right of the caller where a procedure has the same owner as what it uses. Babelfish does.
if serverproperty('Babelfish') = 1
begin
    exec (N'grant execute on changefeed.check_session to public');
    exec (N'grant execute on changefeed.check_read to public');
    exec (N'grant execute on changefeed.hex to public');
    exec (N'grant execute on changefeed.ulid to public');
end;
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
-- Creates the procedures of a feed, for setup_feed and for migrations that change them.
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
        @place int = 1,
        @keys int = 0,
        @column nvarchar(300),
        @definition nvarchar(500);

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
    while @procedure <= 4
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
        if @@rowcount > 0 return;

        -- Nothing new in the feed. A feed that was filled by hand has no state yet: its last position counts.
        set @last = (select ulid from {state} where shard_id = @shard_id);
        if @last is null
            set @last = (select top (1) ulid from {feed} where shard_id = @shard_id order by ulid desc);
        if @cursor > coalesce(@last, @start)
        begin
            set @message = concat(''changefeed 77102: the cursor is ahead of the last position given in '',
                ''shard '', @shard_id, '' of {table}. It is of another shard or feed, or the database was '',
                ''restored: read again from the position of the restored consumer, or from the beginning.'');
            throw 77102, @message, 1;
        end;
        -- An idle poll takes no lock.
        if exists (select 1 from {outbox} where shard_id = @shard_id)
            exec {number} @shard_id, @cursor, @pagesize;

        insert into #read (ulid{columns})
        select top (@pagesize) ulid{columns} from {feed}
        where shard_id = @shard_id and ulid > @cursor order by ulid;
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
        @LockOwner = ''Transaction'', @LockTimeout = 10000;
    if @granted < 0
    begin
        set @message = concat(''changefeed 77106: another reader holds the lock of shard '', @shard_id,
            '' of {table}. Nothing was changed. Try again.'');
        throw 77106, @message, 1;
    end;
    -- Until the commit, nobody else writes the feed of this shard. Each statement has a new snapshot.
    if not exists (select 1 from {feed} where shard_id = @shard_id and ulid > @cursor)
    begin
        set @last = (select ulid from {state} where shard_id = @shard_id);
        if @last is null
            set @last = (select top (1) ulid from {feed} where shard_id = @shard_id order by ulid desc);
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
create procedure {read_events} @shard_id int, @cursor binary(16), @pagesize int = 100 as
begin
    set nocount on;
    set implicit_transactions off;
    set transaction isolation level read committed;
    create table #read (ulid binary(16) not null primary key{definitions});
    exec {read_feed} @shard_id, @cursor, @pagesize;
    select r.ulid, case when e.{first} is null then 1 else 0 end as missing, {keys} as key_columns{of_read}, e.*
    from #read as r left join {events} as e on {joined}
    order by r.ulid;
end' else N'
-- Whether a read may find something, or would refuse a cursor that is ahead; it takes no lock.
create procedure {has_news} @shard_id int, @cursor binary(16) as
begin
    set nocount on;
    set implicit_transactions off;
    set transaction isolation level read committed;
    select case when exists (select 1 from {feed} where shard_id = @shard_id and ulid > @cursor)
        or exists (select 1 from {outbox} where shard_id = @shard_id)
        or @cursor > coalesce((select ulid from {state} where shard_id = @shard_id),
            0x00000000000000000000000000000000) then 1 else 0 end as has_news;
end' end;
        set @text = replace(@text, N'{table}', replace(@table, N'''', N''''''));
        set @text = replace(@text, N'{read_feed}', changefeed.object_name(N'read_feed:', @table));
        set @text = replace(@text, N'{read_events}', changefeed.object_name(N'read_events:', @table));
        set @text = replace(@text, N'{has_news}', changefeed.object_name(N'has_news:', @table));
        set @text = replace(@text, N'{number}', changefeed.object_name(N'number:', @table));
        set @text = replace(@text, N'{outbox}', changefeed.object_name(N'outbox:', @table));
        set @text = replace(@text, N'{feed}', changefeed.object_name(N'feed:', @table));
        set @text = replace(@text, N'{state}', changefeed.object_name(N'state:', @table));
        set @text = replace(@text, N'{events}', @events);
        set @text = replace(@text, N'{columns}', @columns);
        set @text = replace(@text, N'{definitions}', @definitions);
        set @text = replace(@text, N'{of_outbox}', @of_outbox);
        set @text = replace(@text, N'{of_taken}', @of_taken);
        set @text = replace(@text, N'{of_read}', @of_read);
        set @text = replace(@text, N'{joined}', @joined);
        set @text = replace(@text, N'{first}', @first);
        set @text = replace(@text, N'{keys}', cast(@keys as nvarchar(10)));
        set @routine = changefeed.object_name(
            case @procedure
                when 1 then N'number:' when 2 then N'read_feed:' when 3 then N'read_events:' else N'has_news:'
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
-- Sets up the feed of a table that has a primary key.
--   @table   schema.Table, without quotes
--   @outbox  only 1 is supported
--   @roles   whether the roles [changefeed.writers:schema.Table] and [changefeed.readers:schema.Table] are made
create procedure changefeed.setup_feed @table nvarchar(300), @outbox bit = 0, @roles bit = 1 as
begin
    set nocount on;
    set xact_abort on;
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

    begin transaction;
    insert into changefeed.outbox_feed (table_name) values (@table);
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
        primary key (consumer, shard_id))');
    exec (@text);
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
    set xact_abort on;
    declare
        @message nvarchar(2048),
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
    begin transaction;
    delete from changefeed.outbox_feed where table_name = @table;
    while @place <= 8
    begin
        set @text = concat(
            case when @place <= 4 then N'drop procedure ' else N'drop table ' end,
            changefeed.object_name(
                case @place
                    when 1 then N'read_events:' when 2 then N'read_feed:' when 3 then N'number:'
                    when 4 then N'has_news:' when 5 then N'outbox:' when 6 then N'feed:'
                    when 7 then N'state:' else N'claim:'
                end, @table));
        exec (@text);
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
