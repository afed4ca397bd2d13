-- One row: whether transactions are read-only, NULL, whether autovacuum runs, and the clock in milliseconds since
-- 1970.
select current_setting('transaction_read_only') = 'on', null, current_setting('autovacuum') = 'on',
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint
