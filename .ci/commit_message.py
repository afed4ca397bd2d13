#!/usr/bin/env python3
"""Check commit messages: git's hook checks a new message, CI the commits of a pull request.

    .ci/commit_message.py FILE             the message that is being written
    .ci/commit_message.py --range A..B     the commits of a range, without merges

It prints each problem, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_SUBJECT = 72
MAX_LINE = 80

# Subjects that git writes, and those of commits that are squashed into another one before they are pushed.
_BY_GIT = re.compile(r'Merge |Revert "|(fixup|squash|amend)! ')
_TO_SQUASH = re.compile(r"(fixup|squash|amend)! ")
_SUBJECT = re.compile(r"[a-z][a-z0-9_. /-]*: (?P<verb>[a-z][a-z-]*)( .*)?")
# Verbs that end like another form: "added", "adding", "adds".
_NOT_IMPERATIVE = re.compile(r"\w+(ed|ing|[^s]s)")
_IMPERATIVE = {"bring", "embed", "exceed", "feed", "focus", "need", "proceed", "seed", "shed", "speed", "succeed"}
_SCISSORS = re.compile(r"^. -+ >8 -+\n.*", re.MULTILINE | re.DOTALL)


def problems(message: str) -> Iterator[str]:
    """Yield what is wrong with a message that has no comments."""
    subject, *rest = message.rstrip("\n").split("\n")
    if _BY_GIT.match(subject):
        return
    if len(subject) > MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters: shorten it to {MAX_SUBJECT}"
    if subject.endswith("."):
        yield "the subject ends with a full stop: remove it"
    form = _SUBJECT.fullmatch(subject)
    if form is None:
        yield "the subject is not 'area: imperative verb …', in lower case up to the verb"
    elif _NOT_IMPERATIVE.fullmatch(form["verb"]) and form["verb"] not in _IMPERATIVE:
        yield f"{form['verb']!r} is not an imperative: write 'add', not 'adds', 'added' or 'adding'"
    if not any(line.strip() for line in rest):
        yield "there is no body: say why, after a blank line"
    elif rest[0].strip():
        yield "the line after the subject is not blank"
    for line in rest:
        # A link cannot be broken.
        if len(line) > MAX_LINE and "://" not in line:
            yield f"a line of the body has {len(line)} characters: break it after {MAX_LINE}: {line[:30]}…"


def _git(*arguments: str, text: str | None = None) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout


def written(file: Path) -> str:
    """Return the message that git keeps of a file that an editor has saved."""
    return _git("stripspace", "--strip-comments", text=_SCISSORS.sub("", file.read_text(encoding="utf-8")))


def main() -> int:
    """Check one message or those of a range; return the exit code."""
    parser = argparse.ArgumentParser(description="Check commit messages.")
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument("file", type=Path, nargs="?", help="a message that is being written")
    of.add_argument("--range", metavar="A..B", help="the commits to check")
    chosen = parser.parse_args()
    wrong = 0
    if chosen.file is not None:
        for problem in problems(written(chosen.file)):
            wrong += 1
            print(f"commit message: {problem}", file=sys.stderr)
        return min(wrong, 1)
    for commit in _git("rev-list", "--no-merges", "--reverse", chosen.range).split():
        message = _git("show", "--no-patch", "--format=%B", commit)
        found = list(problems(message))
        if _TO_SQUASH.match(message):
            found.append("squash it into the commit that it belongs to")
        for problem in found:
            wrong += 1
            print(f"{commit[:10]} {message.partition(chr(10))[0]!r}: {problem}", file=sys.stderr)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
