"""`python -m verification.journal check FILE`: says what is wrong with a journal."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from verification.journal.checker import Policy, Wrong, check
from verification.journal.entries import JournalError, load
from verification.journal.specification import TOPICS_CLOCK_S, validate


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m verification.journal", description=__doc__)
    commands = found.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("check", help="say what is wrong with a journal, such as one of `make chaos`")
    judging.add_argument("file", type=Path, metavar="FILE", help="the journal; compressed if it ends with .gz")
    judging.add_argument(
        "--on-poison",
        choices=[policy.value for policy in Policy],
        default=Policy.SKIP,
        type=Policy,
        help="the RELAY_ON_POISON of the run (default: %(default)s)",
    )
    judging.add_argument(
        "--window-s",
        type=float,
        metavar="S",
        help="the topic's duplicate detection window: compare with it what was dropped",
    )
    judging.add_argument(
        "--incomplete", action="store_true", help="the run was ended before everything could arrive"
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Check a journal, and return the exit code.

    It is 0 if nothing is wrong, 1 if something is, 2 if the file is no journal.
    """
    options = parser().parse_args(arguments)
    try:
        journal = load(options.file)
    except (JournalError, OSError, EOFError, UnicodeDecodeError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    report = check(journal, options.on_poison, is_complete=not options.incomplete)
    steps = validate(journal, options.on_poison, window_s=options.window_s, slack_s=TOPICS_CLOCK_S)
    for finding in (*report.findings, *steps.findings):
        print(finding, file=sys.stderr)
    counts = {wrong.value: report.counts[wrong] for wrong in Wrong}
    quarantined = {"quarantined": report.quarantined, "expected_quarantined": report.expected_quarantined}
    print(json.dumps({"entries": len(journal), **counts, "not_specified": steps.counts.total(), **quarantined}))
    return 0 if report.is_right and not steps.counts.total() else 1


if __name__ == "__main__":
    sys.exit(main())
