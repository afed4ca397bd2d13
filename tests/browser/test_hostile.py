"""Foreign text on the page: ids, keys, reasons and data are always shown and never executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.async_api import expect

from outbox_relay.operator.console.model import (
    Arrival,
    DeadLetter,
    DeadLetterGroup,
    Delivery,
    MessageContent,
    Partition,
    Problem,
    QuarantineGroup,
    Snapshot,
    Stage,
    Subscription,
    Timeline,
    Tracked,
)
from relay.backends.findings import Finding, Level
from relay.backends.outbox import Committed
from tests.support.console_page import ConsolePage
from tests.support.console_view import NOON, record

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]

PAYLOADS = (
    "<script>document.title='owned by script'</script>",
    "<img src=x onerror=\"document.title='owned by img'\">",
    '" autofocus onfocus="document.title=\'owned by attribute\'" x="',
    "' onmouseover='document.title=1' hx-get='/check' hx-trigger='load' x='",
    "javascript:document.title='owned by address'",
    "</title></script></style></textarea><svg onload=\"document.title='owned by svg'\">",
    "{{ 7 * 7 }}{% raw %}",
    "line\r\nevent: headline\ndata: owned by stream\n\n",
    "\u202egnp.exe \x1b[31m\x00\ud800",
    "--reason=x; $(touch /tmp/owned) `id`",
)


class Payloads:
    """A payload for each text, in turns."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.given += 1
        # Whatever the number of texts between two of one place, that place gets them all.
        return PAYLOADS[(self.given + self.given // len(PAYLOADS)) % len(PAYLOADS)]


def hostile_events(texts: Iterator[str], key: str) -> list[Tracked]:
    """An event for each payload, with payloads wherever a text is."""
    return [
        Tracked(
            id=next(texts),
            stage=(Stage.PUBLISHED, Stage.QUARANTINED)[number % 2],
            event=Committed(
                id="x",
                partition_key=key or next(texts),
                action=next(texts),
                committed_at=NOON,
                created_at=next(texts),
                sequence=number,
                traceparent=(next(texts), f"00-{next(texts)}-00f067aa0ba902b7-01")[number % 2],
                partition=next(texts),
                place=(1, number),
            ),
            published_at=NOON,
            quarantined=record(
                number,
                reason=next(texts),
                detail=next(texts),
                quarantined_at=next(texts),
                partition_key=next(texts),
            ),
            deliveries=[Delivery("x", next(texts), Arrival.DEAD_LETTERED, NOON, NOON, 2, next(texts))],
            data=next(texts),
        )
        for number in range(len(PAYLOADS))
    ]


def hostile(snapshot: Snapshot, texts: Iterator[str]) -> dict[str, object]:
    """The changes that put payloads into every text of a snapshot."""
    everywhere = range(len(PAYLOADS))
    return {
        "flow": replace(snapshot.flow, headroom_s=None),
        "partitions": [
            Partition(next(texts), next(texts), next(texts), 1, 9, NOON, 2, next(texts)) for _ in everywhere
        ],
        "subscriptions": [Subscription(next(texts), 1, 1, 1) for _ in everywhere],
        "quarantine": [
            QuarantineGroup(
                next(texts),
                2,
                [record(1, next(texts), id=next(texts), detail=next(texts), document_id=next(texts))],
            )
            for _ in everywhere
        ],
        "dead_letters": [
            DeadLetterGroup(
                next(texts),
                next(texts),
                1,
                [
                    DeadLetter(
                        next(texts),
                        next(texts),
                        next(texts),
                        next(texts),
                        next(texts),
                        NOON,
                        MessageContent(next(texts), next(texts)),
                    )
                ],
            )
            for _ in everywhere
        ],
        "problems": [Problem(next(texts), next(texts)) for _ in everywhere],
        "recent": hostile_events(texts, ""),
    }


@pytest.mark.parametrize("key", [PAYLOADS[0], PAYLOADS[2], PAYLOADS[7]], ids=["element", "attribute", "stream"])
async def test_no_text_of_others_becomes_part_of_the_page(console: ConsolePage, key: str) -> None:
    """First as the page, then again as the stream."""
    texts = Payloads()
    events = hostile_events(texts, key)
    timeline = Timeline(key, events, True, next(texts), next(texts), [Problem(next(texts), next(texts))])
    console.view.timelines[key] = timeline
    await console.view.set(**hostile(console.view.latest, texts))
    console.checker.findings = [Finding(Level.WARNING, next(texts), next(texts)) for _ in PAYLOADS]

    page = await console.open(key)
    title = await page.title()
    await console.view.set(**hostile(console.view.latest, texts))
    await console.view.set(dead_letters=[*console.view.latest.dead_letters, DeadLetterGroup("all", "the last", 0)])
    await expect(page.locator("#dead-letters")).to_contain_text("the last")
    for details in await page.locator("details summary").all():
        await details.dispatch_event("click")

    assert title.endswith(" \N{EN DASH} Outbox Relay \N{EN DASH} domain-events")
    assert await page.title() == title
    assert await page.locator(".headline").inner_text() != "owned by stream"
    # What the templates make, and nothing that a payload does.
    assert (
        await page.evaluate("document.querySelectorAll('img, iframe, [onerror], [onfocus], [onload], [x]').length")
        == 0
    )
    assert await page.evaluate("document.querySelectorAll('script').length") == 3
    assert await page.evaluate("document.querySelectorAll('[hx-get], [hx-trigger]').length") == 1
    addresses = await page.evaluate("[...document.links].map(each => each.protocol)")
    assert set(addresses) <= {"http:", "https:"}
    traces = await page.locator("a[target=_blank]").count()
    assert traces == 0
    shown = await page.locator("#timeline").inner_text()
    assert "\u202e" not in shown
    assert "\x1b" not in shown


async def test_commands_keep_what_others_wrote_in_one_word(console: ConsolePage) -> None:
    name = "x'; touch owned #"
    await console.view.set(quarantine=[QuarantineGroup(name, 1, [record(1, id="\x1b[201~rm -rf ~")])])

    page = await console.open()
    await page.locator("#quarantine summary").click()

    commands = await page.locator("#quarantine .command code").all_inner_texts()
    assert commands == [
        "python -m relay quarantine release --reason=percent:x%27%3B%20touch%20owned%20%23",
        "python -m relay quarantine discard --reason=percent:x%27%3B%20touch%20owned%20%23",
        "python -m relay quarantine release percent:%1B%5B201~rm%20-rf%20~",
    ]
    copied = await page.locator("#quarantine button[data-copy]").evaluate_all(
        "all => all.map(e => e.dataset.copy)"
    )
    assert copied == commands
