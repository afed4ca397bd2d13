-- As for PostgreSQL, with the rights to see security policies: a filter applies to every login, owners too. Not every
-- server that speaks T-SQL has them.
if object_id(N'sys.security_predicates') is not null
    select object_schema_name(object_id(w.name)) + N'.' + object_name(object_id(w.name))
    from (values (?), (?)) as w (name)
    where exists (
        select 1 from sys.security_predicates as p
        inner join sys.security_policies as s on s.object_id = p.object_id
        where p.target_object_id = object_id(w.name) and p.predicate_type = 0 and s.is_enabled = 1
    )
