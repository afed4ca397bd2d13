"""Session consistency: a read demands a state of its partition, by a session token.

A token is `RANGE:VERSION#LSN`, optionally with the LSNs of regions; several are separated by commas. The children
of a split partition accept its tokens. Writes go to the primary, which has seen everything.

Source: https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency, and for the answer
https://learn.microsoft.com/azure/cosmos-db/nosql/troubleshoot-not-found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from outbox_relay.emulators.cosmos.errors import READ_SESSION_NOT_AVAILABLE, BadRequest, NotFound
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.http_requests import whole_number

HEADER = "x-ms-session-token"


class SessionNotAvailable(NotFound):
    """No replica has reached the state that the token demands."""

    def __init__(self) -> None:
        super().__init__(
            "The read session is not available for the input session token.", READ_SESSION_NOT_AVAILABLE
        )


def token_of(partition: Partition, lsn: int | None = None) -> str:
    """Return the token with which a later read sees what this answer saw: everything, or up to this LSN."""
    return f"{partition.id}:-1#{partition.lsn if lsn is None else lsn}"


def demanded_lsn(headers: Mapping[str, str], partition: Partition) -> int | None:
    """Return the LSN that a read demands of this partition, or None. Raises BadRequest."""
    token = headers.get(HEADER)
    if not token:
        return None
    names = {partition.id, *partition.parents}
    return max((lsn for range_id, lsn in _parts(token) if range_id in names), default=None)


def check_session(headers: Mapping[str, str], partition: Partition) -> None:
    """Raise SessionNotAvailable if the token is ahead of the partition."""
    demanded = demanded_lsn(headers, partition)
    if demanded is not None and demanded > partition.lsn:
        raise SessionNotAvailable()


def _parts(token: str) -> Iterator[tuple[str, int]]:
    for part in token.split(","):
        range_id, colon, progress = part.strip().partition(":")
        fields = progress.split("#")
        lsn = fields[1] if len(fields) > 1 else fields[0]
        number = whole_number(lsn)
        if not colon or number is None:
            raise BadRequest(f"The session token '{token}' is invalid.")
        yield range_id, number
