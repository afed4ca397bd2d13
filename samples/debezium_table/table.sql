create schema shop;

create table shop.customer_order (
    id uuid primary key,
    item text not null,
    quantity integer not null
);

-- The columns that Debezium's outbox event router reads.
create table shop.outbox_event (
    id uuid primary key,
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    payload json not null
);

-- Puts each event on the relay's feed, in its writer's transaction. Its schema is made by `python -m relay install`.
create function shop.put_on_feed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into changefeed."outbox:shop.outbox_event" (shard_id, id)
    values (changefeed.shard_of(new.aggregateid, 4), new.id);
    return null;
end $$;

create trigger put_on_feed after insert on shop.outbox_event
for each row execute function shop.put_on_feed();
