-- The generations of the rules (relay/routes/generations.py). Azure SQL, or SQL Server 2016 or later. One batch.
-- It is harmless to run this again. The relay's user needs no more than:
--   grant select, insert, update on relay.rules to <user>;
if schema_id(N'relay') is null
    exec (N'create schema relay');

if object_id(N'relay.rules', N'U') is null
    create table relay.rules (
        -- The event table, as SQL_FEED names it, in small letters. A feed's table has 100 characters at most.
        feed nvarchar(100) collate Latin1_General_100_BIN2 not null,
        -- A new one with every change.
        etag nvarchar(32) collate Latin1_General_100_BIN2 not null,
        -- The timeline as JSON text in ASCII.
        body nvarchar(max) not null,
        constraint pk_rules primary key (feed)
    );
