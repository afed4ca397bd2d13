-- An event table with the documented columns. Yours may have more, or other types; id, partition_key and data are
-- required, and id is the primary key. action and created_at are for where data itself does not have them.
create table {table} (
    id text primary key,
    partition_key text not null,
    type text not null default 'domainEvent',
    action text,
    -- json keeps the text as it was written; jsonb would reorder members and rewrite numbers.
    data json not null,
    created_at timestamptz not null default now(),
    sequence bigint,
    traceparent text
);
