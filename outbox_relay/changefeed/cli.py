"""`python -m outbox_relay.changefeed`: install the schema, set up feeds, and look at them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from outbox_relay.changefeed import commands
from outbox_relay.changefeed.connections import connect
from outbox_relay.changefeed.errors import ArgumentError, ChangefeedError, DatabaseError, FeedBusyError
from outbox_relay.changefeed.program import PROGRAM, redact
from outbox_relay.command_line import as_json, printable, printable_lines


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Carry out one command; returns the exit code. Results go to standard output, errors to standard error."""
    call = PROGRAM.parse(arguments)
    options: commands.Options = call.options["options"]
    url = options.url or environment.get(commands.URL, "")
    try:
        if not url:
            raise ArgumentError(f"there is no database to connect to. Set {commands.URL}, or pass --url.")
        session = connect(url)
        try:
            outcome: commands.Outcome = call.function(*call.positional, **call.options, session=session)
        finally:
            session.close()
    except ChangefeedError as error:
        code = 1 if isinstance(error, (DatabaseError, FeedBusyError)) else 2
        outcome = commands.Outcome({"error": redact(str(error), url)}, (), code)
        print(f"error: {PROGRAM.as_typed(printable_lines(outcome.values['error']))}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(as_json({**outcome.values, "exitCode": outcome.code}, default=_jsonable))
    else:
        for line in outcome.lines:
            print(printable(line))
    return outcome.code


def _jsonable(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value.isoformat() if isinstance(value, (datetime, date)) else str(value)
