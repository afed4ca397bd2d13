"""`python -m local chaos`: a seeded campaign of faults that checks the guarantees."""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from pathlib import Path
from typing import Any

from local.azurite import server as azurite
from local.chaos import schedule
from local.chaos.campaign import Campaign
from local.chaos.streams import DESTINATIONS
from local.stack.environment import Source
from local.stack.parts import ROOT
from local.stack.supervisor import PartFailed
from outbox_relay.emulators.process import Stopped, until_done
from verification.journal.checker import Policy, Wrong

# The members of the summary that must be 0.
ERRORS = (*(wrong.value for wrong in Wrong), "not_specified", "misrouted", "restarts", "defects")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chaos`."""
    parser.add_argument(
        "--source",
        type=Source.parse,
        metavar="cosmos|sql",
        default=Source.COSMOS,
        help="where the events come from",
    )
    parser.add_argument("--events", type=int, default=10_000, help="events to commit")
    parser.add_argument("--faults", type=int, default=60, help="faults to inject")
    parser.add_argument("--seed", type=int, help="repeat the campaign of this seed; random by default")
    parser.add_argument("--only", dest="kinds", type=_kinds, metavar="KIND,…", help="only these kinds of fault")
    parser.add_argument(
        "--without", type=_kinds, metavar="KIND,…", default=(), help="all kinds of fault but these"
    )
    parser.add_argument(
        "--on-poison",
        choices=[policy.value for policy in Policy],
        default=Policy.SKIP,
        type=Policy,
        help="RELAY_ON_POISON; with park and block an operator carries out what the relay asks for",
    )
    parser.add_argument("--payload", type=int, default=4000, help="length of the longest events' text")
    parser.add_argument("--hosts", type=int, default=3, help="Functions hosts that share the leases, or workers")
    parser.add_argument(
        "--destinations",
        type=int,
        choices=range(1, len(DESTINATIONS) + 1),
        default=1,
        help="topics and queues, by a relay.toml; one of several is disabled for a third of the campaign",
    )
    parser.add_argument(
        "--outboxes",
        type=int,
        choices=(1, 2),
        default=1,
        help="containers or feeds, where there are several destinations",
    )
    parser.add_argument(
        "--rule-changes",
        type=int,
        metavar="N",
        default=0,
        help="deployments of other rules during the campaign, where there are several destinations",
    )
    parser.add_argument(
        "--rules-at-once",
        action="store_true",
        help='leave out changed_rules = "later": changed rules count for all events that a stream has not read',
    )
    parser.add_argument(
        "--large",
        type=float,
        metavar="PERCENT",
        default=0.0,
        help="percentage of events that exceed the topics' limit, with RELAY_LARGE=claim-check, and blobs' faults",
    )
    parser.add_argument("--shards", type=int, default=4, help="shards of the SQL feed")
    parser.add_argument("--writers", type=int, default=16, help="concurrent writers, each with its own keys")
    parser.add_argument("--consumers", type=int, default=32, help="sessions received concurrently")
    parser.add_argument("--rate", type=float, default=400.0, help="approximate events committed per second")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        help="seconds without progress, and from the end of the faults to the last event, before giving up",
    )
    parser.add_argument(
        "--function-timeout-s",
        type=int,
        metavar="S",
        default=10,
        help="functionTimeout of the hosts with the fault time-out-function; take a longer one on a busy machine",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="inject each fault once; do not repeat those that had no effect",
    )
    parser.add_argument(
        "--from",
        dest="earlier",
        type=Path,
        metavar="FOLDER",
        help="an earlier release of this project, whose processes are replaced by this one's, back, and again",
    )
    parser.add_argument("--app", type=Path, default=ROOT, help="folder with function_app.py and host.json")
    parser.add_argument(
        "--window-s", type=int, default=300, help="the topic's duplicate detection window, in seconds"
    )
    parser.add_argument("--pool", action="store_true", help="send by the pool of senders: RELAY_PIPELINED=false")
    parser.add_argument("--no-duplicate-detection", action="store_true", help="remove that safeguard")
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="where to write the journal (default: journal.jsonl of the logs)",
    )
    parser.add_argument("--logs", type=Path, default=Path(".local/chaos-logs"), help="folder for the logs")


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if unknown := set(kinds) - schedule.ALL_KINDS.keys():
        raise argparse.ArgumentTypeError(
            f"unknown kind of fault: {', '.join(sorted(unknown))}; the kinds are {', '.join(schedule.ALL_KINDS)}"
        )
    return kinds


async def run(arguments: argparse.Namespace) -> int:
    """Run a campaign, and return the exit code.

    It is 0 when all errors are zero, exactly the poison is in quarantine, and the campaign was live; 1 when not; 2
    on Windows and with a kind of another source; 130 when stopped.
    """
    if sys.platform == "win32":
        print("`chaos` freezes processes with POSIX signals. Run it on Linux, macOS or WSL.", file=sys.stderr)
        return 2
    # They log every error that they recover from; under faults these are expected.
    for name in ("azure", "psycopg"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    available = schedule.SQL_KINDS if arguments.source is Source.SQL else schedule.KINDS
    if arguments.large:
        available = available | schedule.BLOB_KINDS
    arguments.kinds = arguments.kinds or tuple(available)
    arguments.kinds = tuple(kind for kind in arguments.kinds if kind not in arguments.without)
    if other := [kind for kind in arguments.kinds if kind not in available]:
        without = "" if arguments.large else " and without --large"
        print(f"With --source {arguments.source}{without} there is no fault {', '.join(other)}.", file=sys.stderr)
        return 2
    arguments.journal = arguments.journal or arguments.logs / "journal.jsonl"
    if arguments.outboxes > 1 and arguments.destinations == 1:
        print("--outboxes 2 needs --destinations 2 or 3.", file=sys.stderr)
        return 2
    if arguments.rule_changes and (arguments.destinations == 1 or arguments.on_poison is not Policy.SKIP):
        # A released record goes by the rules of the day, and not by those of its commit.
        print("--rule-changes needs --destinations 2 or 3, and --on-poison skip.", file=sys.stderr)
        return 2
    if arguments.earlier and not (arguments.earlier / "function_app.py").is_file():
        print(f"--from {arguments.earlier}: there is no function_app.py, as each release has.", file=sys.stderr)
        return 2
    if arguments.earlier and arguments.rule_changes:
        print("--from and --rule-changes exclude each other.", file=sys.stderr)
        return 2
    if arguments.large and (why := azurite.missing()):
        print(f"--large needs Blob Storage: {why}.", file=sys.stderr)
        return 2
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(10**6)
    try:
        summary = await until_done(Campaign(arguments).run())
    except Stopped:
        return 130
    except PartFailed as failure:
        print(f"The campaign of seed {arguments.seed} stopped: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(summary), flush=True)
    return 0 if is_right(summary) else 1


def is_right(summary: dict[str, Any]) -> bool:
    """Return True if a campaign's summary has no error."""
    errors = any(summary[name] for name in ERRORS)
    return not errors and summary["live"] and summary["quarantined"] == summary["expected_quarantined"]
