"""`python -m journal check FILE`: says what is wrong with a journal."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from journal.checker import Policy, Wrong, check
from journal.entries import JournalError
from journal.files import load


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m journal", description=__doc__)
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
        "--incomplete", action="store_true", help="the run was ended before everything could arrive"
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """0 if nothing is wrong, 1 if something is, 2 if the file is no journal."""
    options = parser().parse_args(arguments)
    try:
        journal = load(options.file)
    except (JournalError, OSError, EOFError, UnicodeDecodeError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    report = check(journal, options.on_poison, is_complete=not options.incomplete)
    for finding in report.findings:
        print(finding, file=sys.stderr)
    counts = {wrong.value: report.counts[wrong] for wrong in Wrong}
    quarantined = {"quarantined": report.quarantined, "expected_quarantined": report.expected_quarantined}
    print(json.dumps({"entries": len(journal), **counts, **quarantined}))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
