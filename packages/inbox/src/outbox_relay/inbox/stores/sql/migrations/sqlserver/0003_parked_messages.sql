-- A parked message is identified by its subscription, id and number, not by its number alone: two subscriptions have
-- the same numbers, and one that is made anew begins again. So the messages of a key are in the order of `position`,
-- and those of one position in that of their numbers. The subscription of what was parked before is not known ('').
-- A receiver of the earlier version that still runs fails at the table that it knows, and completes nothing.
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
insert into {inbox}parked_messages (
    consumer, topic, "key", position, subscription, sequence_number, id, message, attempts
)
select consumer, topic, "key",
    row_number() over (partition by consumer, topic, "key" order by number),
    cast(0x as varbinary(512)), number, id, message, attempts
from {inbox}parked with (tablockx, holdlock);
drop table {inbox}parked;
