-- The columns of the primary key of a table, in order, each with whether the table or a part of it is partitioned by it.
select a.attname, exists (
    select from pg_catalog.pg_partition_tree(c.oid) t
    join pg_partitioned_table p on p.partrelid = t.relid
    join pg_attribute b on b.attrelid = p.partrelid and b.attnum = any (p.partattrs::int2[])
    where b.attname = a.attname
)
from pg_index i
join pg_class c on c.oid = i.indrelid
join pg_namespace n on n.oid = c.relnamespace
cross join pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where n.nspname = ? and c.relname = ? and i.indisprimary
order by k.place
