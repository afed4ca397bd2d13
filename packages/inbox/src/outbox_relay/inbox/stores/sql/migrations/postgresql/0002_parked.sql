-- Keys that are parked, and their messages, which wait in the order of the broker's numbers. A key has a row while it
-- has a message. A released key may be claimed: by whom, and until when. A message without text is only a place.
create table {inbox}parked_keys (
    consumer text collate "C" not null,
    topic text collate "C" not null,
    key text collate "C" not null,
    since timestamptz not null,
    reason text not null,
    error text not null,
    detail text not null,
    released integer not null,
    token text,
    until timestamptz,
    primary key (consumer, topic, key)
);
create table {inbox}parked (
    consumer text collate "C" not null,
    topic text collate "C" not null,
    key text collate "C" not null,
    number bigint not null,
    id text not null,
    message text,
    attempts integer not null,
    primary key (consumer, topic, key, number)
);
