BEGIN TRANSACTION;
CREATE TABLE inbox_gaps (
    progress integer not null,
    first integer not null,
    last integer not null,
    primary key (progress, first)
) without rowid;
INSERT INTO "inbox_gaps" VALUES(1,2,2);
CREATE TABLE inbox_handled (
    consumer text not null,
    id text not null,
    key text,
    topic text,
    at real not null
);
INSERT INTO "inbox_handled" VALUES('default','order-1','k','events',1.79598622686759090425e+09);
INSERT INTO "inbox_handled" VALUES('default','order-3','k','events',1.79598622687364149093e+09);
CREATE TABLE inbox_parked_keys (
    consumer text not null,
    topic text not null,
    key text not null,
    since real not null,
    reason text not null,
    error text not null,
    detail text not null,
    released integer not null,
    token text,
    until real,
    primary key (consumer, topic, key)
);
CREATE TABLE inbox_parked_messages (
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
CREATE TABLE inbox_progress (
    progress integer primary key,
    consumer text not null,
    entity text not null,
    key text,
    topic text,
    last integer not null
);
INSERT INTO "inbox_progress" VALUES(1,'default','k','k','events',3);
CREATE TABLE inbox_schema (version integer not null);
INSERT INTO "inbox_schema" VALUES(1);
INSERT INTO "inbox_schema" VALUES(2);
INSERT INTO "inbox_schema" VALUES(3);
INSERT INTO "inbox_schema" VALUES(4);
CREATE UNIQUE INDEX inbox_handled_id on inbox_handled (consumer, id, key, topic);
CREATE INDEX inbox_handled_at on inbox_handled (consumer, at);
CREATE UNIQUE INDEX inbox_progress_entity on inbox_progress (consumer, entity, key, topic);
CREATE INDEX inbox_parked_messages_number on inbox_parked_messages (consumer, topic, key, sequence_number);
COMMIT;
