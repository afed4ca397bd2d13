"""host.json: what of it decides how a Cosmos DB trigger behaves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.functions.errors import HostError
from local.functions.timespan import parse_timespan

DEFAULT_FUNCTION_TIMEOUT_S = 30 * 60.0
MINIMUM_FUNCTION_TIMEOUT_S = 1.0
_UNLIMITED_S = -86_400.0
_DATE_HANDLING = "extensions.cosmosDB.serializerSettings.dateParseHandling"


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """`function_timeout_s` is None where an invocation may last for ever; `rewrite_dates` is FACT 2's trap."""

    function_timeout_s: float | None
    rewrite_dates: bool
    has_extension_bundle: bool

    @classmethod
    def from_directory(cls, app_directory: Path) -> HostConfiguration:
        """Read `host.json` of that directory. Raises HostError if it is missing or cannot be honoured."""
        path = app_directory / "host.json"
        try:
            content = json.loads(path.read_text("utf-8-sig"))
        except FileNotFoundError:
            raise HostError(f"{path} does not exist: {app_directory} is no function app") from None
        except ValueError as error:
            raise HostError(f"{path} is not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("version") != "2.0":
            raise HostError(f'{path} must be an object with "version": "2.0"')
        return cls(
            function_timeout_s=_function_timeout(content.get("functionTimeout")),
            rewrite_dates=_rewrites_dates(_at(content, _DATE_HANDLING)),
            has_extension_bundle="extensionBundle" in content,
        )


def _at(content: Any, path: str) -> Any:
    for name in path.split("."):
        # .NET configuration does not distinguish case in the names.
        names = {key.casefold(): key for key in content} if isinstance(content, dict) else {}
        if name.casefold() not in names:
            return None
        content = content[names[name.casefold()]]
    return content


def _function_timeout(value: Any) -> float | None:
    """Seconds; None for "-1" (a TimeSpan of minus one day), which the real host takes as unlimited."""
    if value is None:
        return DEFAULT_FUNCTION_TIMEOUT_S
    seconds = parse_timespan(str(value), name="functionTimeout in host.json")
    if seconds == _UNLIMITED_S:
        return None
    if seconds < MINIMUM_FUNCTION_TIMEOUT_S:
        raise HostError(
            f"functionTimeout in host.json is {value!r}: it must be at least 00:00:01, or -1 for no limit"
        )
    return seconds


def _rewrites_dates(value: Any) -> bool:
    """True unless dates are left alone, as extension 4.9.0 and later can (azure-webjobs-sdk-extensions 923)."""
    handling = "datetime" if value is None else str(value).casefold()
    if handling not in {"datetime", "none"}:
        raise HostError(f"{_DATE_HANDLING} in host.json is {value!r}: this host knows None and DateTime")
    return handling == "datetime"
