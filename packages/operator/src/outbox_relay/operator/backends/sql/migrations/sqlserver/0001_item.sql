-- The store of the relay's quarantine (relay/backends/sql/quarantine.py). Azure SQL, or SQL Server 2016 or later. One batch.
-- It is harmless to run this again. The relay's user needs no more than:
--   grant select, insert, update, delete on relay.item to <user>;
--
-- That module describes how these columns store ids, keys and other text with any characters. Text is
-- compared code unit by code unit (a BIN2 collation). Everything is nvarchar, as drivers send text as nvarchar.
if schema_id(N'relay') is null
    exec (N'create schema relay');

if object_id(N'relay.item', N'U') is null
    create table relay.item (
        -- SHA-256 of the partition key in UTF-8, as hexadecimal digits: a key may be longer than an index takes.
        key_digest nvarchar(64) collate Latin1_General_100_BIN2 not null,
        id nvarchar(255) collate Latin1_General_100_BIN2 not null,
        partition_key nvarchar(max) collate Latin1_General_100_BIN2 not null,
        -- A new one with every change.
        etag nvarchar(32) collate Latin1_General_100_BIN2 not null,
        type nvarchar(64) collate Latin1_General_100_BIN2 not null,
        -- The item as JSON text in ASCII.
        body nvarchar(max) not null,
        touched_at nvarchar(40) collate Latin1_General_100_BIN2 null,
        -- What is asked for of records of quarantined documents.
        reason nvarchar(64) collate Latin1_General_100_BIN2 null,
        detail nvarchar(max) null,
        quarantined_at nvarchar(40) collate Latin1_General_100_BIN2 null,
        position int null,
        invocation_id nvarchar(max) null,
        document_id nvarchar(max) null,
        document_parts int null,
        lsn bigint null,
        place bigint null,
        ulid nvarchar(26) collate Latin1_General_100_BIN2 null,
        constraint pk_item primary key (key_digest, id),
        -- Where the table is new, so is its index.
        index ix_item_type (type, quarantined_at, position, id)
    );
