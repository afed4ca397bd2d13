"""The Functions host's own file, host.json, of which the relay reads the functionTimeout."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from relay.config.secrecy import quoted
from relay.core.errors import SettingsError

_OVERRIDE = "AzureFunctionsJobHost__functionTimeout"
# The host takes comments in host.json, and a byte order mark before it.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TIMESPAN = re.compile(r"(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)")


def function_timeout_s(app: Path, environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the host's functionTimeout in seconds, or None if it is unlimited (-1), or not set.

    Args:
        app: The folder that has host.json.
        environment: The settings, one of which may override it.
            https://learn.microsoft.com/azure/azure-functions/functions-host-json#override-hostjson-values

    Raises:
        SettingsError: It is no time span, or host.json cannot be read.
    """
    try:
        text = (app / "host.json").read_text(encoding="utf-8").removeprefix("\ufeff")
        content = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
    except (OSError, ValueError) as error:
        raise SettingsError([f"host.json cannot be read: {error}"]) from error
    configured = content.get("functionTimeout") if isinstance(content, dict) else None
    timeout = environment.get(_OVERRIDE) or configured
    if timeout is None or timeout == "-1":
        return None
    match = _TIMESPAN.fullmatch(str(timeout))
    if match is None:
        raise SettingsError([f"functionTimeout is {quoted(timeout)}: set it as hh:mm:ss, such as 00:10:00"])
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
