-- Handled messages, the highest handled number of each entity, and the numbers that are missing below it. Texts are
-- UTF-8. The keys are not clustered: a clustered one may have 900 bytes, another one 1,700.
create table {inbox}handled (
    row_number bigint identity not null primary key,
    consumer varbinary(128) not null,
    topic varbinary(512) not null,
    "key" varbinary(512) not null,
    id varbinary(512) not null,
    at datetime2(3) not null,
    unique nonclustered (consumer, topic, "key", id)
);
create index inbox_handled_at on {inbox}handled (consumer, at);
create table {inbox}progress (
    progress bigint identity not null primary key,
    consumer varbinary(128) not null,
    topic varbinary(512) not null,
    "key" varbinary(512) not null,
    entity varbinary(512) not null,
    last bigint not null,
    unique nonclustered (consumer, topic, "key", entity)
);
create table {inbox}gaps (
    progress bigint not null references {inbox}progress,
    first bigint not null,
    last bigint not null,
    primary key (progress, first)
);
-- Keys that are parked. A key has a row while it has a message. A released key may be claimed: by whom, and until when.
create table {inbox}parked_keys (
    row_number bigint identity not null primary key,
    consumer varbinary(128) not null,
    topic varbinary(512) not null,
    "key" varbinary(512) not null,
    since datetime2(3) not null,
    reason nvarchar(max) not null,
    error nvarchar(max) not null,
    detail nvarchar(max) not null,
    released integer not null,
    token varchar(32),
    until datetime2(3),
    unique nonclustered (consumer, topic, "key")
);
-- Messages of parked keys. Each is identified by its subscription, id and number: two subscriptions have the same
-- numbers, and one that is made anew begins again. So the messages of a key are in the order of `position`, and those
-- of one position in that of their numbers. A message without text is only a place.
create table {inbox}parked_messages (
    row_number bigint identity not null primary key,
    consumer varbinary(128) not null,
    topic varbinary(512) not null,
    "key" varbinary(512) not null,
    position bigint not null,
    subscription varbinary(512) not null,
    sequence_number bigint not null,
    id varbinary(512) not null,
    enqueued_at varchar(32),
    message varchar(max),
    attempts integer not null,
    unique nonclustered (consumer, topic, "key", position, sequence_number)
);
create index inbox_parked_messages_number on {inbox}parked_messages (consumer, topic, "key", sequence_number);
