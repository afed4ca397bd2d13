"""Releases and discards records in quarantine, as the operators' command does."""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence

from relay.core.events import Reason
from relay_operator.cli import quarantine
from relay_operator.cli.main import run
from relay_operator.cli.terminal import Terminal

OPERATIONS = {"release": quarantine.release, "discard": quarantine.discard}


async def change(
    operation: str,
    environment: Mapping[str, str],
    stream: str | None,
    *,
    ids: Sequence[str] = (),
    reason: Reason | None = None,
) -> tuple[bool, str]:
    """Do one of OPERATIONS to the records of a stream with these ids, or to those of a reason.

    The only stream of a stack needs no name.

    Returns:
        Whether everything was done, and what the command prints.
    """
    arguments = argparse.Namespace(
        command=f"quarantine {operation}",
        run=OPERATIONS[operation],
        env_file=(),
        source=None,
        stream=stream,
        ids=ids,
        all=False,
        reason=reason,
        partition_key=None,
        yes=True,
        why="on the page of the local stack",
    )
    out, notes = io.StringIO(), io.StringIO()
    code = await run(arguments, environment, Terminal(as_json=False, out=out, err=notes, stdin=io.StringIO()))
    return code == 0, (out.getvalue() or notes.getvalue()).strip()
