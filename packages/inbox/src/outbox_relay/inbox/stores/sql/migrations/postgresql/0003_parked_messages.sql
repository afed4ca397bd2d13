-- A parked message is identified by its subscription, id and number, not by its number alone: two subscriptions have
-- the same numbers, and one that is made anew begins again. So the messages of a key are in the order of `position`,
-- and those of one position in that of their numbers. The subscription of what was parked before is not known ('').
-- A receiver of the earlier version that still runs fails at the table that it knows, and completes nothing.
-- The table is changed in place: a copy in a snapshot would lack what such a receiver has added meanwhile.
alter table {inbox}parked rename to inbox_parked_messages;
alter table {inbox}parked_messages rename column number to sequence_number;
alter table {inbox}parked_messages add column position bigint;
alter table {inbox}parked_messages add column subscription text collate "C" not null default '';
alter table {inbox}parked_messages alter column subscription drop default;
alter table {inbox}parked_messages add column enqueued_at text collate "C";
update {inbox}parked_messages as parked set position = numbered.position
from (
    select consumer, topic, key, sequence_number,
        row_number() over (partition by consumer, topic, key order by sequence_number) as position
    from {inbox}parked_messages
) as numbered
where parked.consumer = numbered.consumer and parked.topic = numbered.topic and parked.key = numbered.key
    and parked.sequence_number = numbered.sequence_number;
alter table {inbox}parked_messages alter column position set not null;
alter table {inbox}parked_messages drop constraint inbox_parked_pkey;
alter table {inbox}parked_messages add primary key (consumer, topic, key, position, sequence_number);
create index inbox_parked_messages_number on {inbox}parked_messages (consumer, topic, key, sequence_number);
