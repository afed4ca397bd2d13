"""Generation 1: feeds of numbered changes. A sweeper numbers what was committed, and readers follow the numbers.

The event table has a column `change_id`. A writer draws it from the sequence `changefeed.change_id`, and inserts
it into `changefeed.change` in the same transaction. A page of events, with `:cursor`, `:feed_id`, `:shard` and
`:limit`:

    select c.change_sequence_number, e.*
    from changefeed.change c join app.event e on e.change_id = c.change_id
    where c.feed_id = :feed_id and c.shard = :shard and c.change_sequence_number > :cursor
    order by c.change_sequence_number
    offset 0 rows fetch next :limit rows only

Without `order by` the page is any of the rows behind the cursor, and those before its last one are skipped. An
empty page leaves the cursor as it is.
"""
