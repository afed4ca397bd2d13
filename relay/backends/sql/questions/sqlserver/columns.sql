-- The columns of a table: name, and type without its length.
select c.name, t.name from sys.columns as c
inner join sys.types as t on t.user_type_id = c.system_type_id
where c.object_id = object_id(?)
order by c.column_id
