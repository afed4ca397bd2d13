"""Releases and discards records in quarantine, by the operators' own command."""

from __future__ import annotations

import io
from collections.abc import Mapping

from relay.cli.main import parser, run
from relay.cli.terminal import Terminal


async def quarantine(operation: str, words: list[str], environment: Mapping[str, str]) -> tuple[bool, str]:
    """Run `python -m relay quarantine OPERATION WORDS` in this process.

    Args:
        operation: `release` or `discard`.
        words: The records: an id, or `--reason` and a reason.
        environment: The settings.

    Returns:
        Whether everything was done, and what the command printed.
    """
    # "--" ends the options, as an id may begin with a dash.
    chosen = words if words[0] == "--reason" else ["--", *words]
    options = ["--yes"] if operation == "discard" else []
    out, notes = io.StringIO(), io.StringIO()
    arguments = parser().parse_args(["quarantine", operation, *options, *chosen])
    code = await run(arguments, environment, Terminal(as_json=False, out=out, err=notes, stdin=io.StringIO()))
    return code == 0, (out.getvalue() or notes.getvalue()).strip()
