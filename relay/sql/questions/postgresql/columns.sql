-- The columns of a table: name, and type without its length; of a domain, the type below it.
select a.attname, format_type(coalesce(nullif(t.typbasetype, 0::oid), t.oid), null)
from pg_attribute a
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
join pg_type t on t.oid = a.atttypid
where n.nspname = ? and c.relname = ? and a.attnum > 0 and not a.attisdropped
order by a.attnum
