-- Keys that are parked, and their messages, which wait in the order of the broker's numbers. A key has a row while it
-- has a message. A released key may be claimed: by whom, and until when. A message without text is only a place.
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
create table {inbox}parked (
    row_number bigint identity not null primary key,
    consumer varbinary(128) not null,
    topic varbinary(512) not null,
    "key" varbinary(512) not null,
    number bigint not null,
    id varbinary(512) not null,
    message varchar(max),
    attempts integer not null,
    unique nonclustered (consumer, topic, "key", number)
);
