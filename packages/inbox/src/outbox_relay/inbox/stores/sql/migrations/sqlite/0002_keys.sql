-- An event is identified by its topic, key and id, and each gap has a row.
--
-- Topic and key are NULL if they are unknown: what version 1 has recorded. A handler with version 1 that still runs
-- fails at these tables, before its effect, rather than handle again what this version has handled.
alter table inbox_handled rename to inbox_handled_1;
alter table inbox_progress rename to inbox_progress_1;
drop index inbox_handled_at;
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
insert into inbox_handled (consumer, id, at) select consumer, id, at from inbox_handled_1;
insert into inbox_progress (consumer, entity, last) select consumer, entity, last from inbox_progress_1;
insert into inbox_gaps (progress, first, last)
select new.progress, json_extract(gap.value, '$[0]'), json_extract(gap.value, '$[1]')
from inbox_progress_1 as old join inbox_progress as new using (consumer, entity), json_each(old.gaps) as gap;
drop table inbox_handled_1;
drop table inbox_progress_1;
