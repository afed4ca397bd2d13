"""The pipelined sender: many transfers in flight on one link, at most one for a partition key."""
