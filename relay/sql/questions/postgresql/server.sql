-- One row: the default isolation level, NULL, whether autovacuum runs, and the clock in milliseconds since 1970.
select current_setting('transaction_isolation'), null, current_setting('autovacuum') = 'on',
       (extract(epoch from clock_timestamp()) * 1000::numeric)::bigint
