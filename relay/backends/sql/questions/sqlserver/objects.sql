-- As for PostgreSQL. A login sees the objects that it has rights on.
select w.purpose, case when object_id(w.name) is null then 0 else 1 end,
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'SELECT'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'INSERT'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'UPDATE'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'DELETE'), 0),
    coalesce(has_perms_by_name(w.name, 'OBJECT', 'EXECUTE'), 0)
from (values {rows}) as w (purpose, name)
