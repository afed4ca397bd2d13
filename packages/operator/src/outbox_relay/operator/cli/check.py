"""`python -m relay check`: validates settings and resources against what the guarantees require."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from rich.text import Text

from outbox_relay.command_line import printable
from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.backends.scans import Scan
from outbox_relay.operator.cli import generations
from outbox_relay.operator.cli.blocked_keys import holdups
from outbox_relay.operator.cli.options import (
    Administration,
    AllStreams,
    Session,
    command_app,
    duration,
    each_outbox,
)
from outbox_relay.operator.cli.routes_report import explained
from outbox_relay.operator.cli.servicebus_checks import (
    Requirements,
    ServiceBusFacts,
    check_servicebus,
    read_namespace,
    read_servicebus,
)
from outbox_relay.operator.cli.terminal import ExitCode, Result
from relay.backends.findings import Finding, Level
from relay.config.clients import ManagementAddress, administration_address
from relay.config.settings import SERVICEBUS, Settings
from relay.core.errors import SettingsError
from relay.core.remedy import PLAIN, Invocation, Sentence, render
from relay.servicebus.senders import differences

_DEFAULTS = Requirements()

EXAMPLES = """\
examples:
  python -m relay check
  python -m relay check --min-window PT1H --min-ttl P7D --strict
  python -m relay check --env-file .local/stack.env
  python -m relay check --scan
  python -m relay check --json | jq '.findings[] | select(.level != "ok")'

The command changes nothing and sends no message. Each finding has a level:
  ok       as it should be
  warning  works, with a risk that the finding names   (exit code 1 only with --strict)
  unknown  cannot be read with the rights you have     (exit code 1, or 0 with --allow-unknown)
  error    must be fixed; the finding names the remedy (exit code 1)

What is set is checked: COSMOS, SQL or both. Of a relay.toml, the rules and the streams are listed, and every
stream is checked. What they all have in common is reported once; the rest names its streams.

Partition keys that are parked, or blocked by an event that can never be published, are named with the event and
with the command that lets them go on.

--scan reads what the relay has not passed to its end, and finds events that can never become messages: the relay
would quarantine them, or they would park or block their keys. In Cosmos DB it also finds documents that the
Functions host cannot deliver: a lease stops at such a document, and no invocation fails. On a large backlog this
takes time and request units.

Reading the properties of the topic and its subscriptions requires the Manage right. The app does not need it."""

_STYLES = {Level.WARNING: "bold yellow", Level.UNKNOWN: "bold magenta", Level.ERROR: "bold red"}


app = command_app("check", EXAMPLES)


@app.default
async def check(
    *,
    min_window: Annotated[
        timedelta,
        duration("the shortest acceptable duplicate detection window, as PT10M, 10m or in seconds"),
    ] = _DEFAULTS.min_window,
    min_ttl: Annotated[timedelta, duration("warn if messages live for less than this")] = _DEFAULTS.min_ttl,
    administration: Administration = None,
    scan: bool = False,
    strict: bool = False,
    allow_unknown: bool = False,
    options: AllStreams = AllStreams(),
    session: Session,
) -> Result:
    """Check the settings and, if they are valid, the resources that they name.

    Args:
        scan: find events that can never become messages, and documents that the Functions host cannot deliver
        strict: exit with 1 on warnings too
        allow_unknown: do not exit with 1 on what cannot be read
    """
    by = options.invocation
    try:
        streams = options.streams(session.environment)
    except SettingsError as error:
        return result(ExitCode.USAGE, settings_findings(error), by)
    required = Requirements(min_window, min_ttl)
    found = await findings(streams, session.environment, required, administration)
    scans = []
    for settings in streams if scan else ():
        for source, backend in each_outbox(settings):
            scans += [await backend.scan()]
            scanned = _chosen(scans[-1].findings, source, settings)
            # What stops the next page was found without a scan.
            found += [each for each in _once([(settings.stream, scanned)], streams) if each not in found]
    code = exit_code(found, strict=strict, allow_unknown=allow_unknown)
    return result(code, found, by, scans)


async def findings(
    streams: Sequence[Settings],
    environment: Mapping[str, str],
    required: Requirements = _DEFAULTS,
    administration: str | None = None,
) -> list[Finding]:
    """Return the findings of `check` with these streams, without a scan; `administration` is the option."""
    destinations = {_destination(each): each for each in streams}
    outboxes = [(each, source, backend) for each in streams for source, backend in each_outbox(each)]
    # All at once: each service may take its time to answer, or not to.
    facts, checked = await asyncio.gather(
        asyncio.gather(*(_read(each, environment, administration) for each in destinations.values())),
        asyncio.gather(*(backend.check() for _, _, backend in outboxes)),
    )
    large = await _large(streams[0], facts)
    of_rules = await generations.findings(streams)
    twice = await _one_entity_twice(streams, environment, administration)
    read = dict(zip(destinations, facts, strict=True))
    held = [
        _chosen(await _holdups(backend, found, read[_destination(settings)]), source, settings)
        for (settings, source, backend), found in zip(outboxes, checked, strict=True)
    ]
    of = [settings.stream for settings, _, _ in outboxes]
    topics = [list(check_servicebus(read[_destination(each)], each, required)) for each in streams]
    return [
        Finding(Level.OK, "the settings are complete and well-formed"),
        *explained(streams),
        *of_rules,
        _senders(streams[0]),
        *_once(zip(of, checked, strict=True), streams),
        *_once(zip([each.stream for each in streams], topics, strict=True), streams),
        *twice,
        *large,
        *_once(zip(of, held, strict=True), streams),
    ]


def _destination(settings: Settings) -> tuple[str, str]:
    return settings.servicebus.setting, settings.servicebus.entity


async def _read(settings: Settings, environment: Mapping[str, str], administration: str | None) -> ServiceBusFacts:
    return await read_servicebus(settings, _management(settings, environment, administration))


def _management(
    settings: Settings, environment: Mapping[str, str], administration: str | None
) -> ManagementAddress | None:
    """Return the address of the management endpoint; the option is about the namespace of SERVICEBUS."""
    option = administration if settings.servicebus.setting == SERVICEBUS else None
    return administration_address(option, environment, settings.servicebus.setting)


async def _one_entity_twice(
    streams: Sequence[Settings], environment: Mapping[str, str], administration: str | None
) -> list[Finding]:
    """Find streams of one outbox that send to one topic or queue by two names.

    The names are those of its namespace, such as an alias.
    """
    alike: dict[tuple[str, str], list[Settings]] = {}
    for each in streams:
        alike.setdefault((each.outbox, each.servicebus.entity.lower()), []).append(each)
    found = []
    for several in (each for each in alike.values() if len(each) > 1):
        first: dict[tuple[str, datetime], Settings] = {}
        for each in several:
            namespace = await read_namespace(each, _management(each, environment, administration))
            if namespace is None:
                continue
            other = first.setdefault(namespace, each)
            if other is not each:
                found.append(
                    Finding.error(
                        f"the streams {other.stream} and {each.stream} send events of the outbox {each.outbox} to "
                        f"{each.servicebus.destination} of one namespace, {namespace[0]!r}: "
                        f"{other.servicebus.setting} and {each.servicebus.setting} are two names of it, so the "
                        "order within a key is lost",
                        "Name it in both destinations of relay.toml as one: a route can lead to it only once.",
                    )
                )
    return found


async def _large(settings: Settings, facts: Sequence[ServiceBusFacts]) -> list[Finding]:
    """Return the findings about the storage of large events, which is one container for all streams."""
    if settings.policy.claim_check is None:
        return []
    from outbox_relay.operator.large_check import check

    lives = [each.longest_life for each in facts]
    longest = None if None in lives else max(life for life in lives if life is not None)
    return await check(settings.policy.claim_check, longest)


async def _holdups(
    backend: OperatorBackend, checked: Sequence[Finding], servicebus: ServiceBusFacts
) -> list[Finding]:
    """Return the holdups of one outbox, unless what was `checked` of it says already why they cannot be read."""
    if any(finding.unavailable for finding in checked):
        return []
    # With claim-check, no size is too large.
    unlimited = backend.settings.policy.claim_check is not None
    found = await holdups(backend, None if unlimited else servicebus.largest_message)
    explained = any(finding.level in (Level.ERROR, Level.UNKNOWN) for finding in checked)
    return [finding for finding in found if not (explained and finding.level is Level.UNKNOWN)]


def _chosen(found: Sequence[Finding], source: str | None, settings: Settings) -> list[Finding]:
    """Return the findings with remedies about this outbox and stream if there are several."""
    work = Invocation(source=source, stream=settings.stream if settings.several else None)
    return [
        replace(each, remedy=each.remedy.about(work)) if isinstance(each.remedy, Sentence) else each
        for each in found
    ]


def _once(found: Iterable[tuple[str, Sequence[Finding]]], streams: Sequence[Settings]) -> list[Finding]:
    """Return the findings about streams, each once. A finding names its streams unless all of them have it."""
    pairs = [(finding, stream) for stream, findings in found for finding in findings]
    if len(streams) == 1 and not streams[0].several:
        return [finding for finding, _ in pairs]
    having: dict[Finding, set[str]] = {}
    for finding, stream in pairs:
        having.setdefault(finding, set()).add(stream)
    names = [each.stream for each in streams]
    return [
        finding
        if len(its) == len(names) > 1
        else replace(finding, what=Sentence(f"{_named(sorted(its))}: ", finding.what))
        for finding, its in having.items()
    ]


def _named(streams: Sequence[str]) -> str:
    return f"{'stream' if len(streams) == 1 else 'streams'} {', '.join(streams)}"


def settings_findings(error: SettingsError) -> list[Finding]:
    return [Finding(Level.ERROR, problem) for problem in error.problems]


def _senders(settings: Settings) -> Finding:
    if not settings.servicebus.pipelined:
        return Finding(Level.OK, "events are sent by a pool of senders, as RELAY_PIPELINED is false")
    if found := differences():
        return Finding(
            Level.WARNING,
            f"events are sent by a pool of senders, although RELAY_PIPELINED is true: {'; '.join(found)}",
            "Install the version in requirements.txt, or set RELAY_PIPELINED to false.",
        )
    return Finding(Level.OK, "events are sent over one connection")


def exit_code(found: list[Finding], *, strict: bool, allow_unknown: bool) -> ExitCode:
    if any(finding.unavailable for finding in found):
        return ExitCode.SERVICE
    counted = {Level.ERROR}
    if strict:
        counted.add(Level.WARNING)
    if not allow_unknown:
        counted.add(Level.UNKNOWN)
    return ExitCode.FINDINGS if any(finding.level in counted for finding in found) else ExitCode.OK


def _line(finding: Finding, by: Invocation = PLAIN) -> Text:
    level, what = f"{finding.level:<8}", f" {printable(render(finding.what, by))}"
    if finding.level is Level.OK:
        return Text(level + what, "dim")
    return Text.assemble((level, _STYLES[finding.level]), what)


def result(
    code: ExitCode,
    found: list[Finding],
    by: Invocation = PLAIN,
    scans: Sequence[Scan] = (),
) -> Result:
    counts = Counter(finding.level for finding in found)
    lines: list[str | Text] = []
    for finding in found:
        lines.append(_line(finding, by))
        if finding.remedy is not None:
            lines.append(f"{'':<8} -> {render(finding.remedy, by)}")
    lines.append(", ".join(f"{counts[level]} {level}" for level in Level))
    data: dict[str, Any] = {
        "counts": {str(level): counts[level] for level in Level},
        "findings": [
            {"level": str(finding.level), "what": finding.what, "remedy": finding.remedy} for finding in found
        ],
    }
    for scan in scans:
        # Two outboxes have members of one name: what is wrong with the events of both.
        data |= {name: data[name] + value if name in data else value for name, value in scan.data.items()}
    return Result(code, data, lines)
