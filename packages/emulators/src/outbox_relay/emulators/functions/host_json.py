"""host.json: the settings that matter to the triggers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox_relay.emulators import jsonc
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.singleton import LockTimings

DEFAULT_LOCKS = LockTimings(60.0, 60.0)
"""The timings of locks in SingletonOptions of Azure/azure-webjobs-sdk. Its limits are those of a blob's lease."""
_LOCK_LIMITS_S = (15.0, 60.0)
DEFAULT_FUNCTION_TIMEOUT_S = 30 * 60.0
MINIMUM_FUNCTION_TIMEOUT_S = 1.0
_UNLIMITED_S = -86_400.0
_DATE_HANDLING = "extensions.cosmosDB.serializerSettings.dateParseHandling"
_BUNDLE = "extensionBundle.version"

# The first bundle whose Cosmos DB extension (4.9.0) has the date setting.
_KNOWS_DATE_HANDLING = (4, 23, 1)
_LOWEST_OF_RANGE = re.compile(r"\s*[\[(]?\s*(?P<major>\d+)(?:\.(?P<minor>\d+|\*))?(?:\.(?P<patch>\d+|\*))?")
_TIMESPAN = re.compile(
    r"(?P<sign>-?)(?:(?P<whole_days>\d+)|(?:(?P<days>\d+)\.)?"
    r"(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,7})?))?)"
)


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """The settings of host.json.

    Attributes:
        function_timeout_s: Seconds that an invocation may take; None for no limit.
        rewrite_dates: Whether date-like strings are rewritten on their way to the function.
        has_extension_bundle: Whether the app gets its trigger from a bundle.
        locks: How long the lock of a timer lasts, and how often another host tries to take it.
    """

    function_timeout_s: float | None
    rewrite_dates: bool
    has_extension_bundle: bool
    locks: LockTimings = DEFAULT_LOCKS

    @classmethod
    def from_directory(cls, app_directory: Path) -> HostConfiguration:
        """Read `host.json` of that directory. Raises HostError if it is missing or not supported."""
        path = app_directory / "host.json"
        try:
            content = jsonc.read(path)
        except FileNotFoundError:
            raise HostError(f"{path} does not exist: {app_directory} is no function app") from None
        except jsonc.JsonError as error:
            raise HostError(f"{path} is {error}") from error
        if not isinstance(content, dict) or content.get("version") != "2.0":
            raise HostError(f'{path} must be an object with "version": "2.0"')
        return cls(
            function_timeout_s=_function_timeout(content.get("functionTimeout")),
            rewrite_dates=_rewrites_dates(content),
            has_extension_bundle="extensionBundle" in content,
            locks=LockTimings(
                _lock_time(content, "listenerLockPeriod", DEFAULT_LOCKS.period_s, _LOCK_LIMITS_S[1]),
                _lock_time(content, "listenerLockRecoveryPollingInterval", DEFAULT_LOCKS.poll_s, math.inf),
            ),
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
    """Return the seconds.

    It is None for "-1" (a TimeSpan of minus one day), which means no limit to the real host.
    """
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


def _lock_time(content: Any, name: str, default_s: float, maximum_s: float) -> float:
    value = _at(content, f"singleton.{name}")
    if value is None:
        return default_s
    seconds = parse_timespan(str(value), name=f"singleton.{name} in host.json")
    if not _LOCK_LIMITS_S[0] <= seconds <= maximum_s:
        raise HostError(f"singleton.{name} in host.json is {value!r}: a lock lasts 15 s to a minute")
    return seconds


def _rewrites_dates(content: Any) -> bool:
    """Return True if dates are rewritten, which `None` prevents since extension 4.9.0.

    Source: azure-webjobs-sdk-extensions pull 923. An older extension silently ignores the setting. The lowest
    bundle of the range decides, as a host that has it on disk uses it (ExtensionBundleManager of
    Azure/azure-functions-host).
    """
    bundle = _at(content, _BUNDLE)
    if bundle is not None and _lowest(str(bundle)) < _KNOWS_DATE_HANDLING:
        return True
    value = _at(content, _DATE_HANDLING)
    handling = "default" if value is None else str(value).casefold()
    if handling not in {"default", "none"}:
        raise HostError(f"{_DATE_HANDLING} in host.json is {value!r}: the extension knows None and Default")
    return handling == "default"


def _lowest(version_range: str) -> tuple[int, int, int]:
    """Return the lowest version of a NuGet version range, where an asterisk begins at 0."""
    match = _LOWEST_OF_RANGE.match(version_range)
    if match is None:
        raise HostError(f"{_BUNDLE} in host.json is {version_range!r}: write a range, as [4.28.0, 5.0.0)")
    part = {name: int(text) if text and text != "*" else 0 for name, text in match.groupdict().items()}
    return part["major"], part["minor"], part["patch"]


def parse_timespan(text: str, *, name: str) -> float:
    """Parse the seconds of a .NET TimeSpan in host.json: `hh:mm:ss`, `d.hh:mm:ss`, or a whole number of days.

    `name` is the name of the value in the error. Raises HostError.
    """
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise HostError(f"{name} is {text!r}: write it as hh:mm:ss or d.hh:mm:ss")
    part = match.groupdict(default="0")
    hours, minutes, seconds = int(part["hours"]), int(part["minutes"]), float(part["seconds"])
    if hours > 23 or minutes > 59 or seconds >= 60:
        raise HostError(
            f"{name} is {text!r}: hours end at 23, minutes and seconds at 59 (days come first: 1.00:00:00)"
        )
    days = int(part["whole_days"]) + int(part["days"])
    total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    return -total if part["sign"] else total
