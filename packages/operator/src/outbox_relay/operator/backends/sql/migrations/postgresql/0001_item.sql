-- The store of the relay's quarantine (relay/backends/sql/quarantine.py). PostgreSQL 13 or later, a database in UTF-8.
-- It is harmless to run this again. The relay's role needs no more than:
--   grant usage on schema relay to <role>;
--   grant select, insert, update, delete on relay.item to <role>;
--
-- That module describes how these columns store ids, keys and other text with any characters. Text is
-- compared byte by byte (collation "C").
create schema if not exists relay;

create table if not exists relay.item (
    -- SHA-256 of the partition key in UTF-8, as hexadecimal digits: a key may be longer than an index takes.
    key_digest varchar(64) collate "C" not null,
    id varchar(255) collate "C" not null,
    partition_key text collate "C" not null,
    -- A new one with every change.
    etag varchar(32) collate "C" not null,
    type varchar(64) collate "C" not null,
    -- The item as JSON text in ASCII.
    body text not null,
    touched_at varchar(40) collate "C",
    -- What is asked for of records of quarantined documents.
    reason varchar(64) collate "C",
    detail text collate "C",
    quarantined_at varchar(40) collate "C",
    position int,
    invocation_id text collate "C",
    document_id text collate "C",
    document_parts int,
    lsn bigint,
    place bigint,
    ulid varchar(26) collate "C",
    constraint pk_item primary key (key_digest, id)
);

create index if not exists ix_item_type on relay.item (type, quarantined_at, position, id);
