-- The generations of the rules (relay/routes/generations.py). PostgreSQL 13 or later.
-- It is harmless to run this again. The relay's role needs no more than:
--   grant usage on schema relay to <role>;
--   grant select, insert, update on relay.rules to <role>;
create schema if not exists relay;

create table if not exists relay.rules (
    -- The event table, as SQL_FEED names it.
    feed text collate "C" not null,
    -- A new one with every change.
    etag varchar(32) collate "C" not null,
    -- The timeline as JSON text in ASCII.
    body text not null,
    constraint pk_rules primary key (feed)
);
