-- For each table or routine: its purpose, whether it is there, and whether this login may select, insert, update,
-- delete, and execute.
select w.purpose, c.oid is not null or p.oid is not null,
       coalesce(visible and has_table_privilege(c.oid, 'select'), false),
       coalesce(visible and has_table_privilege(c.oid, 'insert'), false),
       coalesce(visible and has_table_privilege(c.oid, 'update'), false),
       coalesce(visible and has_table_privilege(c.oid, 'delete'), false),
       coalesce(visible and has_function_privilege(p.oid, 'execute'), false)
from (values {rows}) as w (purpose, schema, name)
left join lateral (
    select n.oid, has_schema_privilege(n.oid, 'usage') as visible from pg_namespace n where n.nspname = w.schema
) as n on true
left join pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p', 'v', 'm', 'f')
left join pg_proc p on p.pronamespace = n.oid and p.proname = w.name
