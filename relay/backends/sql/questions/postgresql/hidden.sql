-- The tables, of those that are named, of which row-level security may hide rows from this login.
select pg_catalog.concat(n.nspname, '.', c.relname)
from (values (?, ?), (?, ?)) as w (schema, name)
join pg_namespace n on n.nspname = w.schema
join pg_class c on c.relnamespace = n.oid and c.relname = w.name
where pg_catalog.row_security_active(c.oid)
