-- One row: whether the database is read-only, whether READ_COMMITTED_SNAPSHOT is on, NULL, and the clock in
-- milliseconds since 1970.
-- By name: in an elastic pool, db_id() is not the database_id of this view.
select case when databasepropertyex(db_name(), 'Updateability') = 'READ_ONLY' then 1 else 0 end,
    (select cast(is_read_committed_snapshot_on as int) from sys.databases where name = db_name()), null,
    datediff_big(millisecond, '1970-01-01', sysutcdatetime())
