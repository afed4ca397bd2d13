"""The content of dead letters, which may be personal: CONSOLE_SHOW_DATA says if the console shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from outbox_relay.operator.console.model import MessageContent
from outbox_relay.operator.console.truncation import CONTENT
from outbox_relay.operator.deadletters import letter
from relay.backends.outbox import cut_text
from relay.config.secrecy import quoted
from relay.core.errors import SettingsError

VARIABLE = "CONSOLE_SHOW_DATA"


def shows_data(environment: Mapping[str, str]) -> bool:
    """Return True if the console is to show the data of events and the content of dead letters.

    Raises:
        SettingsError: The variable is neither 'true' nor 'false', in any case.
    """
    text = environment.get(VARIABLE, "").strip() or "false"
    if text.lower() not in ("true", "false"):
        raise SettingsError([f"{VARIABLE} is {quoted(text)}: set 'true' or 'false'"])
    return text.lower() == "true"


def content_of(encoded: bytes) -> MessageContent:
    """Return the beginning of the properties and of the body of an encoded message."""
    properties = json.dumps(letter.described(encoded), indent=1, ensure_ascii=False)
    return MessageContent(cut_text(properties, CONTENT), cut_text(letter.body(encoded), CONTENT))
