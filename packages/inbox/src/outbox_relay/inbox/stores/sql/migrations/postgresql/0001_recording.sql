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
