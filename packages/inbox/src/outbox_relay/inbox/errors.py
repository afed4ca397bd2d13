"""Exceptions that a handler raises, or that end the receiver."""

from __future__ import annotations

_LONGEST = 4096
"""Maximum characters of a dead-letter reason or description (Service Bus quotas: 4,096 characters)."""


class DeadLetter(Exception):
    """Raised by a handler for a message that can never be handled. The message is dead-lettered immediately.

    Any other exception means "not now": the message is delivered again, before its successors.

    Args:
        reason: A short, fixed word for operators to count by, such as `unreadable`.
        description: What is wrong with this message. Operators see it; leave personal values out.
    """

    def __init__(self, reason: str, description: str = "") -> None:
        self.reason: str = sendable(reason)
        self.description: str = sendable(description)
        super().__init__(f"{self.reason}: {self.description}" if description else self.reason)


class OutsideBlock(Exception):
    """A statement was not executed, or its block had no transaction any more.

    In a `SqliteStore`, it would have become a part of another handler's block of `once`, or would have ended one.
    In other stores: the transaction of a block had ended, or failed, before the block did, and nothing of the
    block was committed since then.
    """


class Conflict(Exception):
    """Another delivery of the message, or another event of its entity, was handled at the same time.

    Raised at the end of a block of a `CosmosStore`. Nothing was written, and the message is delivered again.
    """


class BatchTooLarge(Exception):
    """The writes of a `CosmosStore` block do not fit into a transactional batch. Nothing was written."""


class SessionsNotEnabled(Exception):
    """The queue or subscription does not require sessions, so nothing keeps its messages in order."""


class NotStorable(Exception):
    """A message cannot be stored whole. It is dead-lettered, and its place in the order of its key is stored."""


class NotFetched(Exception):
    """The content of a large event cannot be had now. Its key waits for it, and no delivery is counted."""


class LockLost(Exception):
    """The lock on a session or a message was lost. What is not settled is delivered again to the next holder."""


class Unanswered(Exception):
    """The broker did not answer in time. The connection is discarded and a new one is opened."""


def sendable(text: str) -> str:
    """Return text as a message, a database and a log can hold it, cut to the longest description."""
    # JSON can contain a lone surrogate; AMQP and log files cannot.
    return text[:_LONGEST].encode(errors="replace").decode()
