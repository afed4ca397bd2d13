"""Options that several commands of the local stack have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from local.stack.environment import Source
from outbox_relay.command_line import number, positive, value, whole_number

EnvFile = Annotated[Path, Parameter(metavar="FILE", help="which stack: as given to `up`")]
"""The env file of a running stack."""

SourceOption = Annotated[
    Source, Parameter(metavar="cosmos|sql", show_choices=False, help="where the events come from")
]
"""The source of the events."""

Number = Annotated[int, value(whole_number, metavar="N")]
Positive = Annotated[int, value(positive, metavar="N")]
Seconds = Annotated[float, value(number, metavar="S")]
Folder = Annotated[Path, Parameter(metavar="DIR")]
File = Annotated[Path, Parameter(metavar="FILE")]

ExitWithStdin = Annotated[bool, Parameter(help="also stop when standard input ends")]
"""The option that ties a part of the stack to the process that started it."""
