"""The result of a command: an exit code, data for scripts, and lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Scripts depend on these values."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    SERVICE = 3
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes:
  0    success
  1    there are findings, or part of the work was not done; the output has the details
  2    wrong usage or wrong settings; nothing was done
  3    the outbox or Service Bus could not be reached, or refused the request
  130  interrupted (Ctrl-C)"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command.

    Attributes:
        code: The exit code of the process.
        data: What `--json` prints in addition to `command` and `exitCode`.
        lines: What is printed without `--json`.
    """

    code: ExitCode
    data: Mapping[str, Any]
    lines: list[str] = field(default_factory=list)
