-- Keeps what writers and retention do apart from the isolation level and the transaction of their caller.
--
-- Under SERIALIZABLE or REPEATABLE READ, a plain read of changefeed.shard holds a lock until the writer commits, and a
-- sweep, which updates that row, waits for it. READCOMMITTED reads a version of the row, since the database has
-- READ_COMMITTED_SNAPSHOT on.
drop trigger changefeed.known_shard;
go
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
-- As before, but refuses an open transaction before XACT_ABORT could doom it.
drop procedure changefeed.retain_feed;
go
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
