"""The settings of the console alone; what it reads is found by the settings of the relay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from relay.errors import SettingsError

TRACE_ID = "{trace_id}"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What the page shows beside the state of the relay.

    Attributes:
        trace_url: The address of a trace, with `{trace_id}` for its id; None for no links.
        show_data: Whether the data of events is shown.
    """

    trace_url: str | None = None
    show_data: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ConsoleSettings:
        """Read and check CONSOLE_TRACE_URL and CONSOLE_SHOW_DATA. A blank value counts as not set.

        Raises:
            SettingsError: Naming everything that is wrong.
        """
        problems = []
        trace_url = environment.get("CONSOLE_TRACE_URL", "").strip() or None
        if trace_url is not None and not _is_template(trace_url):
            problems.append(
                f"CONSOLE_TRACE_URL is {trace_url!r}: set an https:// or http:// address that contains {TRACE_ID} "
                "after the host"
            )
        show_data = environment.get("CONSOLE_SHOW_DATA", "").strip().lower() or "false"
        if show_data not in ("true", "false"):
            problems.append(f"CONSOLE_SHOW_DATA is {show_data!r}: set 'true' or 'false'")
        if problems:
            raise SettingsError(problems)
        return cls(trace_url, show_data == "true")


def _is_template(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # such as a bracket that does not close
        return False
    named = parts.scheme in ("http", "https") and parts.hostname is not None
    return named and TRACE_ID in text and TRACE_ID not in parts.netloc
