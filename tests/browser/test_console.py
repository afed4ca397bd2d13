"""The console in a real browser: what each section says, and that it stays true while the relay works."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Literal

import pytest
from playwright.async_api import expect

from outbox_relay.operator.console.freshness import FIGURES, Part
from outbox_relay.operator.console.model import Flow, Known, Partition, Problem, Stage, Timeline
from tests.support.console_page import ConsolePage
from tests.support.console_view import NOON, TRACE, committed, delivered, tracked

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]

MOVING = """[...document.querySelectorAll('.pipe circle')].filter(
    each => getComputedStyle(each).animationName !== 'none')"""


async def test_each_section_says_what_the_view_says(console: ConsolePage) -> None:
    page = await console.open()

    await expect(page).to_have_title("Outbox Relay \N{EN DASH} domain-events")
    await expect(page.locator(".headline")).to_have_text(
        re.compile("4 records in quarantine, 1 parked key, 1 dead-lettered message")
    )
    flow = page.get_by_role("region", name="Flow")
    await expect(flow.locator("[sse-swap=committed]")).to_contain_text("48\u202f213")
    await expect(flow.locator("[sse-swap=accepted]")).to_contain_text("48\u202f207")
    await expect(flow.get_by_role("row", name=re.compile("billing"))).to_have_text(
        re.compile(r"billing\s+12\s+11.907\s+1")
    )
    measures = flow.locator(".measures dl > div")
    assert await measures.all_inner_texts() == [
        "Waiting\n2",
        "Lag\n90\u202fms",
        "Latency p50\n34\u202fms",
        "Latency p99\n212\u202fms",
        "TTL headroom\n9\u202fd 23\u202fh",
        "Quarantined\n4",
        "Parked keys\n1",
    ]

    partitions = page.get_by_role("table", name="Partitions with their owners and positions")
    await expect(partitions.get_by_role("row")).to_have_count(1 + 4)
    await expect(partitions.get_by_role("row").nth(1)).to_have_text(
        re.compile(r"0\s+instance-7c41\s+48213\s+1\s+90.ms")
    )
    recent = page.get_by_role("table", name="The latest events")
    await expect(recent.get_by_role("row")).to_have_count(1 + 50)
    await expect(recent.get_by_role("row").nth(1)).to_contain_text("ContactRenamed")
    await expect(recent.get_by_text("quarantined")).to_have_count(1)
    await expect(recent.get_by_text("dead-lettered")).to_have_count(1)

    quarantine = page.get_by_role("region", name="Quarantine")
    await quarantine.get_by_text("message-refused", exact=True).click()
    await expect(quarantine).to_contain_text("python -m relay quarantine release --reason message-refused")
    await expect(quarantine).to_contain_text("Service Bus: amqp:invalid-field")
    dead = page.get_by_role("region", name="Dead letters")
    await dead.get_by_text("MaxDeliveryCountExceeded", exact=True).click()
    await expect(dead).to_contain_text("Message could not be consumed after 10 delivery attempts.")
    await expect(dead.get_by_role("link")).to_have_text("contact-347")


@pytest.mark.weekly
async def test_a_change_is_on_the_page_within_a_second(console: ConsolePage) -> None:
    page, took = await console.open(), []

    for number in range(3):
        event = committed(51 + number, f"contact-new-{number}")
        started_at = time.monotonic()
        await console.view.set(
            flow=Flow(since=NOON, committed=7 + number, published=6, waiting=2, lag_s=12 + number),
            recent=[tracked(event), *console.view.latest.recent[:49]],
        )
        await expect(page.locator("#recent tbody tr").first).to_contain_text(event.partition_key)
        took.append(time.monotonic() - started_at)
        await expect(page.locator("[sse-swap=committed] .big")).to_have_text(str(7 + number))
        await expect(page.locator(".headline")).to_contain_text(f"the oldest for {12 + number}")

    # The best of three: what else the machine does takes its time as well.
    assert min(took) < 1, took


async def test_what_blocks_a_partition_is_named_with_its_error(console: ConsolePage) -> None:
    page = await console.open()

    await console.view.set(
        partitions=[
            Partition(
                "0", "host-1", "5", 3, 31, NOON - 99, 4, "The topic's quota is exceeded.", still_since=NOON - 10
            )
        ],
        problems=[Problem("Service Bus", "the identity lacks the right Manage")],
    )

    partitions = page.locator("#partitions")
    await expect(partitions).to_contain_text("attempt 4 The topic's quota is exceeded.")
    await expect(partitions).to_contain_text("Not moving since 11:29:50")
    await expect(page.locator(".headline .is-error")).to_contain_text("Partition 0 is being retried")
    await expect(page.locator(".problems")).to_contain_text("Service Bus: the identity lacks")


async def test_what_is_stale_is_grey_and_says_since_when(console: ConsolePage) -> None:
    page = await console.open()
    known, stale = dict(console.view.latest.known), Known(NOON - 10)
    figures = [figure for figure, part in FIGURES.items() if part in (Part.OUTBOX, Part.RELAY, Part.RECENT)]
    problem = Problem("outbox", "the account does not answer")

    await console.view.set(known=known | dict.fromkeys(figures, stale), problems=[problem])

    connection = page.locator("#connection")
    await expect(connection).to_have_text("stale since 11:29:50")
    await expect(connection).to_have_attribute("data-state", "stale")
    await expect(page.locator(".headline")).to_contain_text("It is not known since 11:29:50 what waits")
    for section in ("[sse-swap=committed]", "[sse-swap=accepted]", "#partitions", "#recent"):
        await expect(page.locator(section)).to_contain_text("known at 11:29:50")
    waiting, *_, parked = await page.locator(".measures dl > div").all()
    await expect(waiting).to_have_text(re.compile("Waiting.*known at 11:29:50", re.DOTALL))
    await expect(parked).to_have_text(re.compile("Parked keys\\s*1$"))
    soft = await page.evaluate("getComputedStyle(document.querySelector('.measures dt')).color")
    for figure in ("[sse-swap=committed] .big", ".measures .stale dd", "#recent .badge"):
        await expect(page.locator(figure).first).to_have_css("color", soft)
    assert await page.evaluate(f"{MOVING}.length") == 0

    await console.view.set(known=known, problems=[])
    await expect(connection).to_have_text("live")
    await expect(page.locator(".since")).to_have_count(0)


async def test_the_picture_moves_only_while_something_moves(console: ConsolePage) -> None:
    page = await console.open()
    assert await page.evaluate(f"{MOVING}.length") == 6
    await page.evaluate("document.querySelector('.pipe svg').marked = true")

    await console.view.count(committed=48_300, published=48_290)
    await expect(page.locator("[sse-swap=committed] .big")).to_have_text("48\u202f300")
    # Replaced, its movement would begin anew with every number.
    assert await page.evaluate("document.querySelector('.pipe svg').marked") is True

    await console.view.count(published_s=0.0, committed_s=0.0, waiting=0)
    await expect(page.locator(".pipe .is-idle")).to_have_count(2)
    assert await page.evaluate(f"{MOVING}.length") == 0

    await console.view.count(waiting=3)
    await expect(page.locator(".pipe .is-held")).to_have_count(1)


async def test_a_key_is_found_with_the_keyboard_alone(console: ConsolePage) -> None:
    page = await console.open()

    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Partition key", exact=True)).to_be_focused()
    await page.keyboard.type("contact-1")
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", name="Timeline of contact-1")).to_be_visible()
    await page.get_by_role("link", name="Close the timeline").press("Enter")
    await expect(page.locator("#timeline")).to_have_count(0)


async def test_the_timeline_of_a_key_shows_what_became_of_each_event(console: ConsolePage) -> None:
    page = await console.open("contact-1")

    timeline = page.get_by_role("region", name="Timeline of contact-1")
    events = timeline.locator("li.event")
    await expect(events).to_have_count(6)
    texts = [" ".join(each.split()) for each in await events.all_inner_texts()]
    assert "Committed 11:23:10 Not yet accepted" in texts[0]
    assert "Waiting billing" in texts[1]
    assert "Dead-lettered billing 11:21:48.500 +41 s MaxDeliveryCountExceeded, 10 deliveries" in texts[2]
    assert "Quarantined 2026-02-09 11:20:07 message-too-large: The message has 312 000 bytes" in texts[3]
    assert "Accepted 11:17:02.536 +36 ms Delivered all 11:17:02.560 +24 ms" in texts[4]
    await expect(timeline.locator("li.gap")).to_have_text("2 sequence numbers are missing here: 3\N{EN DASH}4")
    trace = timeline.get_by_role("link", name="Trace").first
    await expect(trace).to_have_attribute("href", f"https://traces.test/trace/{TRACE}")
    await timeline.get_by_text("Data", exact=True).click()
    await expect(timeline.locator("pre")).to_have_text('{"name":"Jane"}')


async def test_an_open_timeline_follows_its_key(console: ConsolePage) -> None:
    event = committed(1, "contact-live")
    console.view.timelines["contact-live"] = Timeline("contact-live", [])
    page = await console.open("contact-live")
    await expect(page.locator("#timeline")).to_contain_text("The outbox has no event of this key.")

    for state, text in (
        (tracked(event, deliveries=[]), "Accepted"),
        (tracked(event, deliveries=[delivered(event)]), "Delivered"),
    ):
        console.view.timelines["contact-live"] = Timeline("contact-live", [state])
        await console.view.set()
        await expect(page.locator("#timeline li.event")).to_contain_text(text)


async def test_the_rest_of_the_page_below_a_timeline_is_opened_with_the_keyboard(console: ConsolePage) -> None:
    page = await console.open("contact-1")
    await expect(page.locator(".headline")).to_be_visible()
    await expect(page.locator("#timeline")).to_be_visible()
    await expect(page.locator("#flow")).to_be_hidden()
    await expect(page.locator("#quarantine")).to_be_hidden()

    await page.get_by_text("The whole stream", exact=True).press("Enter")

    await expect(page.locator("#flow")).to_be_visible()
    # The stream reaches what is folded, and leaves it as its reader has it.
    await console.view.count(committed=7)
    await expect(page.locator("[sse-swap=committed] .big")).to_have_text("7")
    await expect(page.locator("#quarantine")).to_be_visible()


async def test_a_parked_key_has_the_command_that_releases_it(console: ConsolePage) -> None:
    key = "--it's parked"
    console.view.timelines[key] = Timeline(key, [], parked_since="2026-02-09T11:00:00+00:00")

    page = await console.open(key)

    await expect(page.locator("#timeline .notice")).to_contain_text("Parked since 2026-02-09 11:00:00")
    await expect(page.locator("#timeline .command code")).to_have_text(
        "python -m relay quarantine release --all --partition-key=percent:--it%27s%20parked"
    )


async def test_the_check_is_run_when_asked_for_and_not_again_at_once(console: ConsolePage) -> None:
    page = await console.open()
    assert console.checker.runs == 0

    await page.get_by_role("button", name="Run the check").click()
    check = page.get_by_role("region", name="Check")
    await expect(check.locator("li").first).to_have_text(re.compile("warning.*messages expire", re.DOTALL))
    await expect(check.locator("li").first).to_contain_text("raise defaultMessageTimeToLive to P14D")
    await expect(check.locator("li")).to_have_count(4)

    async with page.expect_response("**/check"):
        await page.get_by_role("button", name="Run the check").click()
    assert console.checker.runs == 1


async def test_what_a_reader_has_opened_focused_or_selected_stays(console: ConsolePage) -> None:
    page = await console.open()
    await page.locator("#quarantine summary").first.click()
    copy = page.get_by_role("button", name="Copy: release all with this reason").first
    await copy.focus()

    groups = console.view.latest.quarantine
    await console.view.set(quarantine=[replace(groups[0], count=9), *groups[1:]])
    await expect(page.locator("#quarantine .count").first).to_have_text("9")
    await expect(copy).to_be_focused()
    await expect(page.locator("#quarantine details").first).to_have_attribute("open", "")

    # What is selected is not replaced until it is let go.
    await page.locator("[sse-swap=committed] .big").select_text()
    await console.view.count(committed=3, published=2)
    await expect(page.locator("[sse-swap=accepted] .big")).to_have_text("2")
    assert await page.evaluate("String(getSelection())") == "48\u202f213"
    await page.evaluate("getSelection().removeAllRanges()")
    await expect(page.locator("[sse-swap=committed] .big")).to_have_text("3")


async def test_nothing_on_the_page_shifts_when_numbers_grow(console: ConsolePage) -> None:
    page = await console.open()
    await page.evaluate(
        """() => { window.shifts = 0; new PerformanceObserver(list => {
            for (const each of list.getEntries()) window.shifts += each.value;
        }).observe({ type: 'layout-shift' }); }"""
    )

    for number in range(3):
        event = committed(99, f"contact-{number}")
        partitions = [replace(each, behind=10**number) for each in console.view.latest.partitions]
        await console.view.set(
            flow=replace(
                console.view.latest.flow, committed=10 ** (3 * number), lag_s=number * 2.5, waiting=10**number
            ),
            partitions=partitions,
            recent=[tracked(event), *console.view.latest.recent[:49]],
        )
        await expect(page.locator("#recent tbody tr").first).to_contain_text(event.partition_key)

    assert await page.evaluate("window.shifts") == 0


async def test_the_page_is_dark_where_the_system_is_and_still_where_motion_is_unwanted(
    console: ConsolePage,
) -> None:
    page = await console.open()
    colour = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(colour)

    await page.emulate_media(color_scheme="dark", reduced_motion="reduce")

    assert light == "rgb(244, 246, 248)"
    assert await page.evaluate(colour) == "rgb(14, 18, 22)"
    assert await page.evaluate(f"{MOVING}.length") == 0


@pytest.mark.parametrize("width", [1280, 390])
async def test_recent_events_are_filtered_with_the_keyboard_alone(console: ConsolePage, width: int) -> None:
    await console.page.set_viewport_size({"width": width, "height": 860})
    page = await console.open()
    await page.get_by_label("Stage").focus()
    await page.keyboard.type("quarantined")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.type("contact")
    await page.keyboard.press("Enter")
    await console.is_live()

    rows = page.get_by_role("table", name="The latest events").get_by_role("row")
    await expect(rows).to_have_count(1 + 1)
    await expect(rows.nth(1)).to_contain_text("quarantined")
    assert await page.get_by_label("Action").input_value() == "contact"
    # The stream keeps to the filter.
    recent = [tracked(committed(number), Stage.QUARANTINED) for number in (1, 2)]
    await console.view.set(recent=[*recent, tracked(committed(3))])
    await expect(rows).to_have_count(1 + 2)
    await page.get_by_role("search", name="Recent events").get_by_role("link", name="Show all").press("Enter")
    await console.is_live()
    await expect(rows).to_have_count(1 + 3)


@pytest.mark.parametrize("width", [1280, 390])
async def test_records_are_selected_with_the_keyboard_alone(console: ConsolePage, width: int) -> None:
    await console.page.set_viewport_size({"width": width, "height": 860})
    page = await console.open()
    quarantine = page.get_by_role("region", name="Quarantine")
    await quarantine.locator("summary", has_text="message-too-large").press("Enter")
    boxes = quarantine.get_by_role("checkbox")
    for number in (0, 2):
        await boxes.nth(number).press("Space")
    await quarantine.get_by_role("button", name="Commands for the selected").press("Enter")
    await console.is_live()

    chosen = page.get_by_role("group", name="Selected records")
    await expect(chosen).to_contain_text("2 selected")
    ids = [console.view.latest.quarantine[0].examples[number].id for number in (0, 2)]
    copied = await chosen.locator("[data-copy]").evaluate_all("all => all.map(each => each.dataset.copy)")
    assert copied == [f"python -m relay quarantine {word} {' '.join(ids)}" for word in ("release", "discard")]
    await quarantine.get_by_role("link", name="Select none").press("Enter")
    await console.is_live()
    await expect(chosen).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_last_hour_and_what_operators_removed_are_shown(
    console: ConsolePage, scheme: Literal["light", "dark"]
) -> None:
    await console.page.emulate_media(color_scheme=scheme)
    page = await console.open()

    hour = page.get_by_role("region", name="The last hour")
    for chart in ("Accepted a second", "Lag", "In quarantine", "Dead letters"):
        drawn = hour.get_by_role("img", name=re.compile(f"^{chart} over the last hour: at most .*not observed"))
        await expect(drawn).to_be_visible()
    removed = page.get_by_role("region", name="Released and discarded")
    await expect(removed).to_contain_text("a test order")
    assert await removed.locator(".badge").all_inner_texts() == ["discarded", "released"]
    await removed.get_by_role("link", name="contact-12").press("Enter")
    await console.is_live()
    await expect(page.locator("#timeline")).to_contain_text("Timeline of contact-12")


async def test_the_content_of_a_dead_letter_is_opened_with_the_keyboard(console: ConsolePage) -> None:
    page = await console.open()
    dead = page.get_by_role("region", name="Dead letters")
    await dead.locator("summary", has_text="MaxDeliveryCountExceeded").press("Enter")
    await dead.locator("summary", has_text="Properties and body").press("Enter")

    await expect(dead.get_by_text('{"street": "12 Elm Street"}')).to_be_visible()
