-- An event table with the documented columns. Yours may have more, or other types; id, partition_key and data are
-- required, and id is the primary key. action and created_at are for where data itself does not have them.
create table {table} (
    id nvarchar(128) collate Latin1_General_100_BIN2 not null primary key,
    partition_key nvarchar(128) collate Latin1_General_100_BIN2 not null,
    type nvarchar(128) not null default N'domainEvent',
    action nvarchar(400),
    data nvarchar(max) not null,
    created_at datetimeoffset(7) not null default sysdatetimeoffset(),
    sequence bigint,
    traceparent varchar(64)
);
