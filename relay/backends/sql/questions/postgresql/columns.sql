-- The columns of a table: name, and type without its length; of a domain, the type below it. The type of an extension
-- has no schema before its name, wherever it was installed.
select a.attname, case when bn.nspname = 'pg_catalog' then format_type(b.oid, null) else b.typname::text end
from pg_attribute a
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_type t on t.oid = a.atttypid
join pg_type b on b.oid = coalesce(nullif(t.typbasetype, 0::oid), t.oid)
join pg_namespace bn on bn.oid = b.typnamespace
where n.nspname = ? and c.relname = ? and a.attnum > 0 and not a.attisdropped
order by a.attnum
