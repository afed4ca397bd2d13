"""Every error of this library, with the HTTP status that suits an API's response.

OutboxError
├── NotFound               404  no such entity, or it is deleted
├── NotModified            304  the reader already has the stored version
├── Conflict               409  the id is already in use
├── PreconditionFailed     412  the entity was changed since it was read
├── Throttled              429  the container's throughput is exhausted
├── Refused                400  rejected before anything is sent
│   ├── BatchTooLarge      413  exceeds a transactional batch
│   ├── MixedPartitions    400  more than one partition key
│   ├── InvalidDocument    400  cannot be stored or relayed unchanged
│   └── InvalidContinuation 400 not a continuation of this listing
├── CommitUncertain        503  the response to a commit was lost
├── Unavailable            503  a read got no response
└── ServiceRefused         502  any other error response

A message says what happened, then, from the error's docstring, what to do.

No error leaves a commit half written. After any of them the unit of work still tracks what it tracked before, and
its events keep their ids. You can call `commit()` again, call `rollback()` and start over, or leave the block.
"""

from __future__ import annotations

from typing import ClassVar

MAX_OPERATIONS = 100
MAX_BATCH_BYTES = 2 * 1024 * 1024


class OutboxError(Exception):
    """See the message for what to do."""

    http_status: ClassVar[int] = 500

    def __init__(self, what: str) -> None:
        """Create an error from `what`: what happened to which object.

        The class docstring, which says what to do, is appended.
        """
        self.what = what
        super().__init__(" ".join([what, *(type(self).__doc__ or "").split()]))


class NotFound(OutboxError):
    """Check the id and the partition key. To read a deleted entity, pass `include_deleted=True`."""

    http_status = 404


class NotModified(OutboxError):
    """Use the version you already have."""

    http_status = 304


class Conflict(OutboxError):
    """Nothing was written. Choose another id, or read the stored entity and update it."""

    http_status = 409


class PreconditionFailed(OutboxError):
    """Call rollback(), read again, reapply the change and commit."""

    http_status = 412


class Throttled(OutboxError):
    """Wait `retry_after` seconds, then repeat the call.

    Repeat commit() on the same unit of work: it is applied once.
    """

    http_status = 429

    def __init__(self, what: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(what)


class Refused(OutboxError):
    """Nothing was written."""

    http_status = 400


class BatchTooLarge(Refused):
    """Nothing was written. Shrink the commit, or take something out with forget() and commit in several steps."""

    http_status = 413

    def __init__(self, what: str, operations: int, size: int) -> None:
        """Create the error.

        `operations` is the number of operations in the batch, `size` its size in bytes as sent.
        """
        self.operations = operations
        self.size = size
        super().__init__(what)


class MixedPartitions(Refused):
    """Nothing was written.

    Commit each partition key in its own unit of work, or give the entities the same partition key.
    """

    def __init__(self, what: str, partition_keys: tuple[str, ...]) -> None:
        self.partition_keys = partition_keys
        super().__init__(what)


class InvalidDocument(Refused):
    """Nothing was written. Correct the entity or event, or take it out with forget(), and commit again."""


class InvalidContinuation(Refused):
    """Pass the `continuation` of a page that was read with the same arguments, or None for the first page."""


class CommitUncertain(OutboxError):
    """Call commit() again on the same unit of work without changing it.

    The commit is applied once, even if this attempt succeeded.
    """

    http_status = 503


class Unavailable(OutboxError):
    """Nothing was changed. Try the read again later."""

    http_status = 503


class ServiceRefused(OutboxError):
    """The refused request wrote nothing.

    Check that the database and the container exist and that the client has access.
    """

    http_status = 502

    def __init__(self, what: str, status: int) -> None:
        """Create the error; `status` is the HTTP status of the response."""
        self.status = status
        super().__init__(what)
