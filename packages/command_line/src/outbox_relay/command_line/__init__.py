"""The command lines of Outbox Relay's programs."""

from __future__ import annotations

from outbox_relay.command_line.output import (
    OUTPUT_CLOSED,
    WIDEST,
    Table,
    as_json,
    as_typed,
    console,
    printable,
    printable_lines,
    python,
    run,
)
from outbox_relay.command_line.program import USAGE, Call, Program
from outbox_relay.command_line.values import number, port_number, positive, value, values, whole_number

__all__ = [
    "OUTPUT_CLOSED",
    "USAGE",
    "WIDEST",
    "Call",
    "Program",
    "Table",
    "as_json",
    "as_typed",
    "console",
    "number",
    "port_number",
    "positive",
    "printable",
    "printable_lines",
    "python",
    "run",
    "value",
    "values",
    "whole_number",
]
