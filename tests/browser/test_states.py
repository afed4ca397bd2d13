"""Every state of the page: nothing overflows on a phone, every text can be read, and every sentence is one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from relay.backends.findings import Finding, Level
from tests.support.console_page import ConsolePage, console_page
from tests.support.console_states import LONG, LONG_KEY, LONG_KEY_COMMAND, long_timeline, states

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]

# What is wider than its place, and is neither meant to be scrolled (commands, data) nor cut with an ellipsis.
OVERFLOWING = """() => {
    const found = [];
    for (const each of document.querySelectorAll('body *')) {
        if (each.closest('.hidden, .skip, svg, .command code, pre, input')) continue;
        if (!each.getClientRects().length) continue;
        const style = getComputedStyle(each), name = each.outerHTML.slice(0, 80);
        const cut = style.textOverflow === 'ellipsis' && style.overflowX === 'hidden';
        const wide = each.scrollWidth > each.clientWidth + 1 && style.display !== 'inline';
        if (wide && !cut) found.push(`${each.scrollWidth} wide in ${each.clientWidth}: ${name}`);
        const right = each.getBoundingClientRect().right;
        if (right > innerWidth + 1 && !each.closest('.cut, .id, .topic')) found.push(`ends at ${right}: ${name}`);
    }
    return found;
}"""

# Of each pair of a text's colour and what is behind it: the ratio of WCAG 2, and where it is.
CONTRASTS = """() => {
    const channels = text => {
        const numbers = text.match(/[\\d.]+(e-?\\d+)?/g).map(Number);
        const scale = text.startsWith('color(') ? 1 : 255;
        return [...numbers.slice(0, 3).map(each => each / scale), numbers.length > 3 ? numbers[3] : 1];
    };
    const over = (top, below) => top.slice(0, 3).map((each, i) => each * top[3] + below[i] * (1 - top[3]));
    const backgroundOf = element => {
        const layers = [];
        for (let each = element; each; each = each.parentElement) {
            layers.push(channels(getComputedStyle(each).backgroundColor));
            if (layers.at(-1)[3] === 1) break;
        }
        return layers.reverse().reduce((below, layer) => over(layer, below), [1, 1, 1]);
    };
    const light = colour => {
        const [r, g, b] = colour.map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = {}, walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || element.closest('.hidden, .skip, script')) continue;
        if (!element.getClientRects().length) continue;
        const style = getComputedStyle(element), background = backgroundOf(element);
        const text = light(over(channels(style.color), background)), ground = light(background);
        const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        const name = `${style.color} on ${background.map(each => Math.round(each * 255))}`;
        if (!(name in found)) found[name] = [ratio, element.outerHTML.slice(0, 100)];
    }
    return found;
}"""

# A lone full stop, a code for a newline, a number that does not agree, and values that are none.
WRONG = (
    r"\s[.,:;](\s|$)",
    r"\\x0a",
    r"\b1 \w+ wait\b",
    r"\b1 events\b",
    r"\.\.",
    r"\bNone\b(?! yet|\.)",
    "undefined",
)

# The text and the command of each state that needs a person.
REMEDIES = {
    "the source is down": ("It is not known since 11:29:50 what waits", "python -m relay check"),
    "deleted soon": ("is deleted by its time to live in 30 min", None),
    "a blocked key": ("Partition 0 is being retried", str(LONG_KEY_COMMAND)),
    "a page withheld": ("MaxDepth of 64 has been exceeded", "python -m relay check --scan"),
    "nobody reads": ("See whether the app or the worker runs", "python -m relay check"),
    "a stale lock": ("Delete that document, then set time to live to on", "python -m relay check"),
    "a topic disabled": (
        "is Disabled. Set its status to Active: az servicebus",
        f"--namespace-name=sbns-relay --name={LONG}",
    ),
    "long names": ("Correct the consumer", f"deadletters list --subscription={'s' * 50} --reason={LONG}"),
    "at work": ("4 records in quarantine", "python -m relay quarantine list"),
}


async def show(console: ConsolePage, name: str) -> Page:
    """The page in a state, with everything opened; with long names, also a timeline."""
    console.view.timelines[LONG_KEY] = long_timeline()
    await console.view.show(states()[name])
    page = await console.open(LONG_KEY if name == "long names" else "")
    await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    return page


@pytest.mark.parametrize("name", states())
async def test_every_state_fits_and_can_be_read(console: ConsolePage, name: str) -> None:
    page = await show(console, name)

    for width in (1280, 768, 390):
        await page.set_viewport_size({"width": width, "height": 860})
        found = await page.evaluate(OVERFLOWING)
        assert not found, "\n".join(found)
    contrasts: dict[str, Any] = {}
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        contrasts |= await page.evaluate(CONTRASTS)
        await page.evaluate("main.classList.toggle('lost')")
        contrasts |= await page.evaluate(CONTRASTS)
        await page.evaluate("main.classList.toggle('lost')")
    text = " ".join((await page.locator("body").inner_text()).split(" "))
    copied = await page.locator("[data-copy]").evaluate_all("all => all.map(each => each.dataset.copy)")

    assert len(contrasts) > 6
    low = [f"{each[0]:.2f}, {pair}: {each[1]}" for pair, each in contrasts.items() if each[0] < 4.5]
    assert not low, "\n".join(low)
    for wrong in WRONG:
        assert not re.search(wrong, text), re.search(rf".{{0,40}}{wrong}.{{0,20}}", text)
    said, command = REMEDIES.get(name, ("", None))
    assert said in " ".join(text.replace("\u202f", " ").split())
    assert command is None or any(each.endswith(command) for each in copied), copied


async def test_the_findings_of_a_check_fit_and_can_be_read(browser: Browser) -> None:
    async with console_page(browser) as console:
        console.checker.findings = [Finding(level, f"{LONG} is", f"{LONG} is the remedy.") for level in Level]
        page = await console.open()
        await page.get_by_role("button", name="Run the check").click()
        await expect(page.locator("#findings li")).to_have_count(len(Level))

        await page.set_viewport_size({"width": 390, "height": 860})

        assert await page.evaluate(OVERFLOWING) == []
        assert {each[1]: each[0] for each in (await page.evaluate(CONTRASTS)).values() if each[0] < 4.5} == {}


async def test_what_is_not_known_is_a_dash_and_no_zero(console: ConsolePage) -> None:
    page = await show(console, "unread")

    assert {each.strip() for each in await page.locator(".big, .measures dd:not(.when)").all_inner_texts()} == {
        "\N{EN DASH}"
    }
    await expect(page.locator("#connection")).to_have_text("reading")
