"""The findings of `check` about what holds up the relay: parked keys, blocked keys, and events that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli.quarantine_admin import SHORT_ID, QuarantineAdmin, open_records, to_the_second
from relay.backends.findings import Finding
from relay.backends.outbox import NextPage
from relay.config.settings import OnPoison, Settings
from relay.core.errors import PoisonError, ServiceError, StoreError
from relay.core.events import Event, Rejected
from relay.core.holds import Holds
from relay.core.plan import plan
from relay.core.remedy import LIST, Sentence, discard, release_key, set_aside
from relay.core.verdict import rejected
from relay.quarantine.items import Filter, Item
from relay.servicebus import messages
from relay.servicebus.transfers import alone, check_size

# Maximum seconds of all that is read.
_TIMEOUT_S = 20.0

# Maximum number of documents of a page: a relay may be set to more.
_PAGE = 1000

# Maximum number of keys that are named; the others are counted.
_NAMED_KEYS = 10


async def holdups(backend: OperatorBackend, largest: int | None) -> list[Finding]:
    """Return the findings about one outbox.

    `largest` is the maximum bytes of a message, None if unknown.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async with open_records(backend) as records:
                parked = await _parked(records)
                holds = await records.holds()
            pages = await _next_pages(backend)
    except (StoreError, ServiceError, TimeoutError) as error:
        no_answer = f"there was no answer within {_TIMEOUT_S:g} s"
        said = no_answer if isinstance(error, TimeoutError) else error.sentence
        return [
            Finding.unknown(
                Sentence("whether a partition key is parked or blocked could not be read: ", said),
                "Run check with an identity that may read the outbox, the relay's positions and the quarantine.",
            )
        ]
    stopped = [finding for page in pages for finding in page.undeliverable]
    pages = [page for page in pages if not page.undeliverable]
    blocked = list(_blocked(pages, holds, backend.settings, largest))
    found = [*parked, *stopped, *blocked] or [Finding.ok("no partition key is parked or known to be blocked")]
    return found + backend.check_pages(pages)


async def _next_pages(backend: OperatorBackend) -> Sequence[NextPage]:
    outbox = backend.open_outbox()
    try:
        return await outbox.next_pages(min(backend.settings.policy.max_items, _PAGE))
    finally:
        await outbox.close()


async def _parked(records: QuarantineAdmin) -> list[Finding]:
    markers = list((await records.parked()).values())
    found = [await _parked_key(marker, records) for marker in markers[:_NAMED_KEYS]]
    if (more := len(markers) - _NAMED_KEYS) > 0:
        found.append(Finding.error(f"{more} more partition key(s) are parked", Sentence("To list them: ", LIST)))
    return found


async def _parked_key(marker: Item, records: QuarantineAdmin) -> Finding:
    key = marker["partitionKey"]
    waiting = await records.count(Filter(partition_key=key))
    causes, _ = await records.find_by_ids([marker["because"]])
    since = f"partition key {key!r} is parked since {to_the_second(marker['since'])}"
    waits = f"{waiting} record(s) of it are in quarantine, and its new events follow"
    release = release_key(key)
    if not causes:
        gone = f"{since}: {waits}. The record that parked it is gone"
        return Finding.error(gone, Sentence("Release it in order: ", release))
    [cause] = causes
    identifier = cause.id[:SHORT_ID]
    document = "a document" if cause.document_id is None else f"document {cause.document_id!r}"
    return Finding.error(
        f"{since} because of {document} (record {identifier}, {cause.reason}: {cause.detail}): {waits}",
        Sentence.of(
            "Correct what refuses it, or discard it: {}; then release the others in order: {}",
            discard(identifier),
            release,
        ),
    )


def _blocked(
    pages: Sequence[NextPage], holds: Holds, settings: Settings, largest: int | None
) -> Iterator[Finding]:
    if settings.policy.on_poison is not OnPoison.BLOCK:
        return
    for page in pages:
        made = plan(page.received, settings.policy.on_poison, holds, frozenset(), _never_accepted)
        poison = [each.by for each in made.blocked.values()]
        poison += [each for events in made.to_publish.values() for each in _too_large(events, settings, largest)]
        for each in poison[:_NAMED_KEYS]:
            yield Finding.error(
                f"partition key {each.partition_key!r} is blocked by document {each.id!r}, which can never be "
                f"published ({each}), as RELAY_ON_POISON is 'block': of partition {page.partition!r}, nothing "
                "behind its page is published",
                Sentence("To let the key go on without it: ", set_aside(each.partition_key or "", each.id)),
            )
        if (more := len(poison) - _NAMED_KEYS) > 0:
            yield Finding.error(
                f"{more} more partition key(s) of partition {page.partition!r} are blocked",
                "Run check again when the first are set aside.",
            )


def _never_accepted(_: Event) -> bool:
    return False


def _too_large(events: Sequence[Event], settings: Settings, largest: int | None) -> Iterator[Rejected]:
    """Yield the first event of a key that the topic does not take, if there is one."""
    message_of = messages.contract(settings.policy.cloudevents_source, settings.selection.fields)
    if largest is None:
        return
    for event in events:
        try:
            check_size(alone(event, message_of), largest)
        except PoisonError as error:
            yield rejected(event, error)
            return
