-- The columns of the primary key of a table, in order.
select a.attname
from pg_index i
join pg_class c on c.oid = i.indrelid
join pg_namespace n on n.oid = c.relnamespace
cross join pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where n.nspname = ? and c.relname = ? and i.indisprimary
order by k.place
