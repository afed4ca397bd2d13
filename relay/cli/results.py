"""What a command gives back: an exit code, the facts for scripts, and the lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Scripts rely on these: they do not change."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    SERVICE = 3
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes:
  0    all well, everything asked for was done
  1    findings, or something was not done; the output says what
  2    wrong usage, or wrong settings; nothing was done
  3    Cosmos DB or Service Bus could not be reached, or refused
  130  interrupted (Ctrl-C)"""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a command.

    Attributes:
        code: The process's exit code.
        data: What `--json` prints, beside `command` and `exitCode`.
        lines: What is printed without `--json`.
    """

    code: ExitCode
    data: Mapping[str, Any]
    lines: list[str] = field(default_factory=list)
