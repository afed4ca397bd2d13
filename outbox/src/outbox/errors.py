"""Every error of this library, and the HTTP status that an API answers it with best.

OutboxError
├── NotFound               404  no such entity, or it is deleted
├── NotModified            304  the reader has the stored version already
├── Conflict               409  the id is taken
├── PreconditionFailed     412  someone else was first
├── Throttled              429  the container's throughput is used up
├── Refused                400  what was asked cannot be done
│   ├── BatchTooLarge      413  more than one transactional batch holds
│   ├── MixedPartitions    400  more than one partition key
│   ├── InvalidDocument    400  cannot be stored, or could not be relayed
│   └── InvalidContinuation 400 no token of this listing
├── CommitUncertain        503  the answer to a commit was lost
├── Unavailable            503  a read got no answer
└── ServiceRefused         502  whatever else the service says

A message is what happened, then the error's docstring: what to do.

None of them leaves anything half written. After each, a unit of work holds what it held before, its events with
the ids they had, so `commit()` can be called again; or `rollback()` empties it, and it can be used afresh; or
it is thrown away.
"""

from __future__ import annotations

from typing import ClassVar

MAX_OPERATIONS = 100
MAX_BATCH_BYTES = 2 * 1024 * 1024


class OutboxError(Exception):
    """See the message."""

    http_status: ClassVar[int] = 500

    def __init__(self, what: str) -> None:
        """`what` happened, to which object; what to do about it is added from the class."""
        self.what = what
        super().__init__(" ".join([what, *(type(self).__doc__ or "").split()]))


class NotFound(OutboxError):
    """Check the id and the partition key; read with `include_deleted=True` to see what is deleted."""

    http_status = 404


class NotModified(OutboxError):
    """Use the version you have."""

    http_status = 304


class Conflict(OutboxError):
    """Nothing was written. Take another id, or read what is there and update it."""

    http_status = 409


class PreconditionFailed(OutboxError):
    """Nothing of this commit was written. Call rollback(), read again, apply the change again and commit."""

    http_status = 412


class Throttled(OutboxError):
    """Wait for `retry_after` seconds, then repeat the call: commit() on the same unit of work, which commits
    once.
    """

    http_status = 429

    def __init__(self, what: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(what)


class Refused(OutboxError):
    """Nothing was written."""

    http_status = 400


class BatchTooLarge(Refused):
    """Nothing was written. Take something out with forget(), or make it smaller, and commit in several steps."""

    http_status = 413

    def __init__(self, what: str, operations: int, size: int) -> None:
        """`operations` in the batch; its `size` in bytes as it would be sent."""
        self.operations = operations
        self.size = size
        super().__init__(what)


class MixedPartitions(Refused):
    """Nothing was written. Commit each partition key in a unit of work of its own, or give the entities one
    partition key.
    """

    def __init__(self, what: str, partition_keys: tuple[str, ...]) -> None:
        self.partition_keys = partition_keys
        super().__init__(what)


class InvalidDocument(Refused):
    """Nothing was written. Put the entity or the event right, or take it out with forget(), and commit again."""


class InvalidContinuation(Refused):
    """Pass the `continuation` of a page that was read with the same arguments, or None to begin at the first
    page.
    """


class CommitUncertain(OutboxError):
    """Call commit() again on the same unit of work, as it is: it is done once, even if this one was done after
    all.
    """

    http_status = 503


class Unavailable(OutboxError):
    """Nothing was changed. Read again in a while."""

    http_status = 503


class ServiceRefused(OutboxError):
    """Nothing was written. Check that the database and the container exist, and that the client may use them."""

    http_status = 502

    def __init__(self, what: str, status: int) -> None:
        """`status` is the HTTP status the service answered with."""
        self.status = status
        super().__init__(what)
