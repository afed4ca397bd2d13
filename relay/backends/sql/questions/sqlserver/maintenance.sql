-- As for PostgreSQL. Identities are cached by the whole server, and nothing is vacuumed. A schema that has not been
-- upgraded lacks the column: then the name is that of the row without one.
select null, null, case when kept.keep is null then 1 else 0 end, null, 0
from (select cast(null as nvarchar(10)) as keep) as absent
cross apply (select keep from changefeed.outbox_feed as f where f.table_name = ?) as kept
