"""`python -m relay deadletters resubmit`: publishes copies of dead letters to the topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from azure.core.exceptions import AzureError
from azure.servicebus.management import SubscriptionProperties

from outbox_relay.operator.cli.deadletter_selection import (
    NOT_LOCKED,
    All,
    Choice,
    Name,
    Selection,
    asked,
    find,
    read_topic,
    subscriptions_of,
)
from outbox_relay.operator.cli.options import OneStream, Session, Yes, duration
from outbox_relay.operator.cli.servicebus_checks import ServiceBusFacts, duplicate_window, receiving_refused
from outbox_relay.operator.cli.terminal import ExitCode, Result
from outbox_relay.operator.deadletters.letter import DeadLetter, iso
from outbox_relay.operator.deadletters.resubmission import Fate, Resubmission
from relay.backends.findings import Gap
from relay.config.settings import Settings
from relay.core.errors import UsageError
from relay.core.times import format_duration
from relay.servicebus.senders import differences

EXAMPLES = """\
examples:
  python -m relay deadletters resubmit all/17
  python -m relay deadletters resubmit --subscription all --reason MaxDeliveryCountExceeded
  python -m relay deadletters resubmit --partition-key contact-5 --yes

Publishes a copy of each dead letter, those of a partition key in their order: the same message id, session id,
properties and body. Every subscription of the topic gets it; the command names them, and asks. A consumer that
recognises repeated message ids skips it; all get it behind the newer events of its partition key.

A copy is refused within the topic's duplicate detection window, which begins when the original was accepted: the
topic would drop it. A dead letter is removed only after its copy was seen in its subscription, whose session is
locked meanwhile. So the command can be interrupted and repeated: no event is lost, and one that a consumer has
taken in between comes again at most once more."""

_WAIT = timedelta(minutes=1)

# Times are shown to the second, and are not to be too early.
_WHOLE = timedelta(microseconds=999_999)

_DONE = (Fate.RESUBMITTED, Fate.WAITING)
_TEXTS = {
    Fate.KEPT: "its copy is in the subscription, but its lock was lost before it was removed: discard it",
    Fate.UNSEEN: "the topic accepted a copy, and none came to the subscription: it had the same id within its "
    "duplicate detection window (from an earlier resubmit, a replay or the relay), or the subscription's rules no "
    "longer match. If the consumer has handled the event, discard this; otherwise try again after {later}",
    Fate.BUSY: "a consumer holds its session: stop the consumer, or give --wait more time",
    Fate.FAILED: "{error}",
    Fate.LOCKED: NOT_LOCKED,
    Fate.NAMELESS: "it has no message id, so that its copy could not be told from others: send the event again "
    "with an id, and discard this",
    Fate.BEHIND: "an earlier dead letter of its partition key was not published",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The dead letters to publish, and those that have to wait.

    Attributes:
        window: The topic's duplicate detection window; None without one.
        ready: Those whose copies the topic takes now.
        early: Those that it would drop.
        others: The subscriptions that get a copy besides those of the dead letters; None if they cannot be listed.
    """

    window: timedelta | None
    ready: list[DeadLetter]
    early: list[DeadLetter]
    others: list[str] | None

    def from_when(self, letter: DeadLetter) -> str:
        """Return the time from which the topic takes a copy of the dead letter."""
        return iso(letter.enqueued_at + (self.window or timedelta()) + _WHOLE)

    @property
    def who(self) -> str:
        """The other subscriptions, in a sentence."""
        if self.others is None:
            return "every other subscription of the topic, which cannot be listed,"
        return ", ".join(map(repr, self.others)) or "no other subscription"


def plan(found: Sequence[DeadLetter], facts: ServiceBusFacts, settings: Settings, now: datetime) -> Plan:
    """Sort the chosen dead letters by whether the topic takes their copies at `now`."""
    window = duplicate_window(facts, settings)
    early = [letter for letter in found if window is not None and letter.enqueued_at + window > now]
    ready = [letter for letter in found if letter not in early]
    subscriptions = facts.subscriptions
    others = None if isinstance(subscriptions, Gap) else _others(subscriptions, ready)
    return Plan(window, ready, early, others)


def _others(subscriptions: Sequence[SubscriptionProperties], letters: Sequence[DeadLetter]) -> list[str]:
    """Return the subscriptions that get an event without having it as a dead letter."""
    events = {(letter.session_id, letter.id) for letter in letters}
    having = Counter(
        subscription
        for subscription, *_ in {(letter.subscription, letter.session_id, letter.id) for letter in letters}
    )
    return sorted(each.name for each in subscriptions if having[each.name] < len(events))


async def resubmit(
    *names: Name,
    all: All = False,
    selection: Selection = Selection(),
    yes: Yes = False,
    wait: Annotated[timedelta, duration("how long to wait for a consumer to release a session")] = _WAIT,
    options: OneStream = OneStream(),
    session: Session,
) -> Result:
    """Publish copies of dead letters, to every subscription of the topic."""
    choice, terminal = Choice.of(selection, names, all=all), session.terminal
    if not yes:
        terminal.require_answers()
    settings = options.settings(session.environment)
    if found := differences():
        raise UsageError(f"resubmit sends over the relay's own link: {'; '.join(found)}")
    subscriptions = await subscriptions_of(settings, selection, session.environment, choice.names)
    facts = await read_topic(settings, selection, session.environment)
    letters = await find(settings, subscriptions, choice, terminal)
    chosen = plan(letters, facts, settings, datetime.now(UTC))
    remark = f"These events go, again, to {chosen.who} as well."
    question = f"Publish {len(chosen.ready)} event(s) again?"
    if chosen.ready and not yes and not asked(chosen.ready, [remark], question, terminal):
        return _result(chosen, {}, {}, choice.missing(letters), refused=True)
    fates, errors = await _publish(settings, chosen.ready, wait.total_seconds())
    return _result(chosen, fates, errors, choice.missing(letters))


async def _publish(
    settings: Settings, letters: Sequence[DeadLetter], wait_s: float
) -> tuple[Mapping[str, Fate], Mapping[str, str]]:
    if not letters:
        return {}, {}
    subscriptions = sorted({letter.subscription for letter in letters})
    try:
        async with Resubmission(settings, subscriptions, wait_s) as resubmission:
            await resubmission.run(letters)
    except (AzureError, OSError) as error:
        raise receiving_refused(error, settings, subscriptions[0]) from error
    return resubmission.fates, resubmission.errors


def _result(
    chosen: Plan,
    fates: Mapping[str, Fate],
    errors: Mapping[str, str],
    missing: Sequence[str],
    *,
    refused: bool = False,
) -> Result:
    later = iso(datetime.now(UTC) + (chosen.window or timedelta()) + _WHOLE)
    left = {name: fate for name, fate in fates.items() if fate not in _DONE}
    why = {name: _TEXTS[fate].format(later=later, error=errors.get(name)) for name, fate in left.items()}
    why |= {letter.name: _early(chosen, letter) for letter in chosen.early}
    why |= dict.fromkeys(missing, "there is no such dead letter")
    done = {fate: [name for name, its in fates.items() if its is fate] for fate in _DONE}
    data: dict[str, Any] = {
        "resubmitted": done[Fate.RESUBMITTED],
        "alreadyWaiting": done[Fate.WAITING],
        "tooEarly": [{"name": letter.name, "from": chosen.from_when(letter)} for letter in chosen.early],
        "left": [{"name": name, "why": str(fate), "detail": why[name]} for name, fate in left.items()],
        "missing": list(missing),
        "otherSubscriptions": chosen.others,
        "refused": refused,
    }
    return Result(_code(why, fates, refused=refused), data, _lines(chosen, done, why, refused=refused))


def _early(chosen: Plan, letter: DeadLetter) -> str:
    assert chosen.window is not None, "without a window, none is early"
    return (
        f"the topic, which detects duplicates for {format_duration(chosen.window)}, would drop its copy: "
        f"resubmit it after {chosen.from_when(letter)}"
    )


def _lines(chosen: Plan, done: Mapping[Fate, list[str]], why: Mapping[str, str], *, refused: bool) -> list[str]:
    lines = [f"{name}: not resubmitted: {text}" for name, text in why.items()]
    if refused:
        return [*lines, "Nothing was resubmitted."]
    lines += [
        f"{name}: an event with its id waits in the subscription already; removed" for name in done[Fate.WAITING]
    ]
    lines.append(f"resubmitted {len(done[Fate.RESUBMITTED])}, left {len(why)}")
    if done[Fate.RESUBMITTED]:
        lines.append(f"These events went, again, to {chosen.who} as well.")
    return lines


def _code(why: Mapping[str, str], fates: Mapping[str, Fate], *, refused: bool) -> ExitCode:
    if fates and all(fate is Fate.FAILED for fate in fates.values()):
        return ExitCode.SERVICE
    return ExitCode.FINDINGS if why or refused else ExitCode.OK
