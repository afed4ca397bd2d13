-- As for PostgreSQL.
select c.name, case when k.partition_ordinal > 0 then 1 else 0 end from sys.indexes as i
inner join sys.index_columns as k on k.object_id = i.object_id and k.index_id = i.index_id
inner join sys.columns as c on c.object_id = k.object_id and c.column_id = k.column_id
where i.object_id = object_id(?) and i.is_primary_key = 1 and k.key_ordinal > 0
order by k.key_ordinal
