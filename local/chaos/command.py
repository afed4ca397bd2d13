"""`python -m local chaos`: a seeded campaign of faults that checks the guarantees."""

from __future__ import annotations

import json
import logging
import random
import sys
from dataclasses import replace
from typing import Any

from local.azurite import server as azurite
from local.chaos import schedule
from local.chaos.campaign import Campaign
from local.chaos.options import Options
from local.stack.environment import Source
from local.stack.supervisor import PartFailed
from outbox_relay.emulators.process import Stopped, until_done
from verification.journal.checker import Policy, Wrong

# The members of the summary that must be 0.
ERRORS = (*(wrong.value for wrong in Wrong), "not_specified", "misrouted", "restarts", "defects")


async def run(*, options: Options = Options()) -> int:
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
    available = schedule.SQL_KINDS if options.source is Source.SQL else schedule.KINDS
    if options.large:
        available = available | schedule.BLOB_KINDS
    kinds = tuple(kind for kind in options.kinds or available if kind not in options.without)
    if other := [kind for kind in kinds if kind not in available]:
        without = "" if options.large else " and without --large"
        print(f"With --source {options.source}{without} there is no fault {', '.join(other)}.", file=sys.stderr)
        return 2
    if options.outboxes > 1 and options.destinations == 1:
        print("--outboxes 2 needs --destinations 2 or 3.", file=sys.stderr)
        return 2
    if options.rule_changes and (options.destinations == 1 or options.on_poison is not Policy.SKIP):
        # A released record goes by the rules of the day, and not by those of its commit.
        print("--rule-changes needs --destinations 2 or 3, and --on-poison skip.", file=sys.stderr)
        return 2
    if options.earlier and not (options.earlier / "function_app.py").is_file():
        print(f"--from {options.earlier}: there is no function_app.py, as each release has.", file=sys.stderr)
        return 2
    if options.earlier and options.rule_changes:
        print("--from and --rule-changes exclude each other.", file=sys.stderr)
        return 2
    if options.large and (why := azurite.missing()):
        print(f"--large needs Blob Storage: {why}.", file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    try:
        summary = await until_done(Campaign(replace(options, kinds=kinds), seed).run())
    except Stopped:
        return 130
    except PartFailed as failure:
        print(f"The campaign of seed {seed} stopped: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(summary), flush=True)
    return 0 if is_right(summary) else 1


def is_right(summary: dict[str, Any]) -> bool:
    """Return True if a campaign's summary has no error."""
    errors = any(summary[name] for name in ERRORS)
    return not errors and summary["live"] and summary["quarantined"] == summary["expected_quarantined"]
