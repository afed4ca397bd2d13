-- Keys that are parked, and their messages, which wait in the order of the broker's numbers. A key has a row while it
-- has a message. A released key may be claimed: by whom, and until when. A message without text is only a place.
create table inbox_parked_keys (
    consumer text not null,
    topic text not null,
    key text not null,
    since real not null,
    reason text not null,
    error text not null,
    detail text not null,
    released integer not null,
    token text,
    until real,
    primary key (consumer, topic, key)
);
create table inbox_parked (
    consumer text not null,
    topic text not null,
    key text not null,
    number integer not null,
    id text not null,
    message text,
    attempts integer not null,
    primary key (consumer, topic, key, number)
);
