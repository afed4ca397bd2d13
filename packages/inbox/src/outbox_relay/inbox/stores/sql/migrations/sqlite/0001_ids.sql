-- An event is identified by its id alone, and the gaps of an entity are one JSON list.
create table inbox_handled (
    consumer text not null, id text not null, at real not null, primary key (consumer, id)
) without rowid;
create index inbox_handled_at on inbox_handled (consumer, at);
create table inbox_progress (
    consumer text not null, entity text not null, last integer not null, gaps text not null,
    primary key (consumer, entity)
) without rowid;
