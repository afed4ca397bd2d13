-- Schema and name of the tables with the columns of a partitioned table that are no partitions of it, or whose
-- detaching has begun: rows of it that were detached may be there.
select cn.nspname, c.relname
from pg_class e
join pg_namespace en on en.oid = e.relnamespace
join pg_class c on c.oid <> e.oid and c.relkind in ('r', 'p', 'f') and c.relpersistence <> 't'
join pg_namespace cn on cn.oid = c.relnamespace
where en.nspname = ? and e.relname = ? and e.relkind = 'p'
and (not c.relispartition
     -- As JSON: PostgreSQL 13 lacks the column.
     or exists (select from pg_inherits i where i.inhrelid = c.oid and i.inhparent = e.oid
                and pg_catalog.to_jsonb(i) ->> 'inhdetachpending' = 'true'))
and not exists (
    select from (select a.attname, a.atttypid from pg_attribute a
                 where a.attrelid = e.oid and a.attnum > 0 and not a.attisdropped) as x
    full join (select a.attname, a.atttypid from pg_attribute a
               where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as y
    on x.attname = y.attname and x.atttypid = y.atttypid
    where x.attname is null or y.attname is null
)
order by 1, 2
