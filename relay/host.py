"""What the Functions host is configured to do, as far as the relay depends on it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from relay.errors import SettingsError

_OVERRIDE = "AzureFunctionsJobHost__functionTimeout"
_TIMESPAN = re.compile(r"(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)")


def function_timeout_s(app: Path, environment: Mapping[str, str] = os.environ) -> float | None:
    """The host's functionTimeout in seconds; None where it is unlimited (-1), or not set.

    Args:
        app: The folder that has host.json.
        environment: Where a setting may override it.
            https://learn.microsoft.com/azure/azure-functions/functions-host-json#override-hostjson-values

    Raises:
        SettingsError: It is no time span, or host.json cannot be read.
    """
    try:
        configured = json.loads((app / "host.json").read_text()).get("functionTimeout")
    except (OSError, ValueError) as error:
        raise SettingsError([f"host.json cannot be read: {error}"]) from error
    text = environment.get(_OVERRIDE) or configured
    if text is None or text == "-1":
        return None
    match = _TIMESPAN.fullmatch(str(text))
    if match is None:
        raise SettingsError([f"functionTimeout is {text!r}: set it as hh:mm:ss, such as 00:10:00"])
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
