-- A parked message is identified by its subscription, id and number, not by its number alone: two subscriptions have
-- the same numbers, and one that is made anew begins again. So the messages of a key are in the order of `position`,
-- and those of one position in that of their numbers. The subscription of what was parked before is not known ('').
-- A receiver of the earlier version that still runs fails at the table that it knows, and completes nothing.
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
insert into inbox_parked_messages (
    consumer, topic, key, position, subscription, sequence_number, id, message, attempts
)
select consumer, topic, key,
    row_number() over (partition by consumer, topic, key order by number),
    '', number, id, message, attempts
from inbox_parked;
drop table inbox_parked;
