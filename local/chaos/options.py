"""The options of `python -m local chaos`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from local.chaos import schedule
from local.chaos.streams import DESTINATIONS
from local.stack.arguments import Folder, Number, Seconds, SourceOption
from local.stack.environment import Source
from local.stack.parts import ROOT
from outbox_relay.command_line import number, value, whole_number
from verification.journal.checker import Policy


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if unknown := set(kinds) - schedule.ALL_KINDS.keys():
        raise ValueError(
            f"unknown kind of fault: {', '.join(sorted(unknown))}; the kinds are {', '.join(schedule.ALL_KINDS)}"
        )
    return kinds


Kinds = Annotated[tuple[str, ...], value(_kinds, metavar="KIND,…")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `chaos`.

    Attributes:
        events: events to commit
        faults: faults to inject
        seed: repeat the campaign of this seed; random by default
        kinds: only these kinds of fault
        without: all kinds of fault but these
        on_poison: RELAY_ON_POISON; with park and block an operator carries out what the relay asks for
        payload: length of the longest events' text
        hosts: Functions hosts that share the leases, or workers
        destinations: topics and queues, by a relay.toml; one of several is disabled for a third of the campaign
        outboxes: containers or feeds, where there are several destinations
        rule_changes: deployments of other rules during the campaign, where there are several destinations
        rules_at_once: leave out changed_rules = "later": changed rules count for all events that are not read
        large: percentage of events that exceed the topics' limit, with RELAY_LARGE=claim-check, and blobs' faults
        shards: shards of the SQL feed
        writers: concurrent writers, each with its own keys
        consumers: sessions received concurrently
        rate: approximate events committed per second
        patience: seconds without progress, and from the end of the faults to the last event, before giving up
        function_timeout_s: functionTimeout of the hosts with the fault time-out-function; longer on a busy machine
        once: inject each fault once; do not repeat those that had no effect
        earlier: an earlier release of this project, whose processes are replaced by this one's, back, and again
        app: folder with function_app.py and host.json
        window_s: the topic's duplicate detection window, in seconds
        pool: send by the pool of senders: RELAY_PIPELINED=false
        no_duplicate_detection: remove that safeguard
        given_journal: where to write the journal (default: journal.jsonl of the logs)
        logs: folder for the logs
    """

    source: SourceOption = Source.COSMOS
    events: Number = 10_000
    faults: Number = 60
    seed: Annotated[int | None, value(whole_number, metavar="N")] = None
    kinds: Annotated[Kinds, Parameter(name="--only")] = ()
    without: Kinds = ()
    on_poison: Policy = Policy.SKIP
    payload: Number = 4000
    hosts: Number = 3
    destinations: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=len(DESTINATIONS)))] = 1
    outboxes: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=2))] = 1
    rule_changes: Number = 0
    rules_at_once: bool = False
    large: Annotated[float, value(number, metavar="PERCENT")] = 0.0
    shards: Number = 4
    writers: Number = 16
    consumers: Number = 32
    rate: Annotated[float, value(number, metavar="N")] = 400.0
    patience: Seconds = 60.0
    function_timeout_s: Annotated[int, value(whole_number, metavar="S")] = 10
    once: bool = False
    earlier: Annotated[Path | None, Parameter(name="--from", metavar="FOLDER")] = None
    app: Annotated[Folder, Parameter(show_default=False)] = ROOT
    window_s: Annotated[int, value(whole_number, metavar="S")] = 300
    pool: bool = False
    no_duplicate_detection: bool = False
    given_journal: Annotated[Path | None, Parameter(name="--journal", metavar="FILE")] = None
    logs: Folder = Path(".local/chaos-logs")

    @property
    def journal(self) -> Path:
        """The file of the journal."""
        return self.given_journal or self.logs / "journal.jsonl"
