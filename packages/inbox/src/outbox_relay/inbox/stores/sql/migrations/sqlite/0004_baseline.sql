-- Handled messages, the highest handled number of each entity, and the numbers that are missing below it.
-- Topic and key are NULL where they are unknown.
create table inbox_handled (
    consumer text not null,
    id text not null,
    key text,
    topic text,
    at real not null
);
create unique index inbox_handled_id on inbox_handled (consumer, id, key, topic);
create index inbox_handled_at on inbox_handled (consumer, at);
create table inbox_progress (
    progress integer primary key,
    consumer text not null,
    entity text not null,
    key text,
    topic text,
    last integer not null
);
create unique index inbox_progress_entity on inbox_progress (consumer, entity, key, topic);
create table inbox_gaps (
    progress integer not null,
    first integer not null,
    last integer not null,
    primary key (progress, first)
) without rowid;
-- Keys that are parked. A key has a row while it has a message. A released key may be claimed: by whom, and until when.
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
-- Messages of parked keys. Each is identified by its subscription, id and number: two subscriptions have the same
-- numbers, and one that is made anew begins again. So the messages of a key are in the order of `position`, and those
-- of one position in that of their numbers. A message without text is only a place.
create table inbox_parked_messages (
    consumer text not null,
    topic text not null,
    key text not null,
    position integer not null,
    subscription text not null,
    sequence_number integer not null,
    id text not null,
    enqueued_at text,
    message text,
    attempts integer not null,
    primary key (consumer, topic, key, position, sequence_number)
);
create index inbox_parked_messages_number on inbox_parked_messages (consumer, topic, key, sequence_number);
