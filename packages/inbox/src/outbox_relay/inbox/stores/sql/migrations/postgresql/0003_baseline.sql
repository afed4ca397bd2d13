-- Handled messages, the highest handled number of each entity, and the numbers that are missing below it.
create table {inbox}handled (
    consumer text collate "C" not null,
    topic text collate "C" not null,
    key text collate "C" not null,
    id text collate "C" not null,
    at timestamptz not null,
    primary key (consumer, topic, key, id)
);
create index inbox_handled_at on {inbox}handled (consumer, at);
create table {inbox}progress (
    progress bigint generated always as identity primary key,
    consumer text collate "C" not null,
    topic text collate "C" not null,
    key text collate "C" not null,
    entity text collate "C" not null,
    last bigint not null,
    unique (consumer, topic, key, entity)
);
create table {inbox}gaps (
    progress bigint not null references {inbox}progress,
    first bigint not null,
    last bigint not null,
    primary key (progress, first)
);
-- Keys that are parked. A key has a row while it has a message. A released key may be claimed: by whom, and until when.
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
-- Messages of parked keys. Each is identified by its subscription, id and number: two subscriptions have the same
-- numbers, and one that is made anew begins again. So the messages of a key are in the order of `position`, and those
-- of one position in that of their numbers. A message without text is only a place.
create table {inbox}parked_messages (
    consumer text collate "C" not null,
    topic text collate "C" not null,
    key text collate "C" not null,
    sequence_number bigint not null,
    id text not null,
    message text,
    attempts integer not null,
    position bigint not null,
    subscription text collate "C" not null,
    enqueued_at text collate "C",
    primary key (consumer, topic, key, position, sequence_number)
);
create index inbox_parked_messages_number on {inbox}parked_messages (consumer, topic, key, sequence_number);
