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
