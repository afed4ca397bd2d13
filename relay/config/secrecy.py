"""Values that are not shown because they may hold a secret: in errors, findings and logs."""

from __future__ import annotations

import re

_SHOWN_CHARACTERS = 80

# A connection string, a URL with a user, a JSON Web token, a client secret of Microsoft Entra, a Base64 key, and
# one in hexadecimal digits that is longer than a UUID.
_SECRET = re.compile(
    r"""
    \b(?:\w*key|pwd|\w*password|\w*secret|\w*token|\w*signature|sig|user[ ]id|uid|server|endpoint)\s*=
    | [^\s;=]=[^;=]+;[\w ]+=
    | ://[^/?\#\s]*@
    | \beyJ[\w-]{8,}\.
    | \b[\w.~]{3}\dQ~[\w.~-]{31,34}
    | (?=[a-z0-9+/]*\d)(?=[0-9A-Z+/]*[a-z])(?=[a-z0-9+/]*[A-Z])[A-Za-z0-9+/]{32,}
    | \b[0-9A-Fa-f]{40,}
    """,
    re.VERBOSE | re.ASCII,
)


def looks_secret(text: str) -> bool:
    """Return True for a text that has the form of a connection string, a URL with a user, a key or a token."""
    return _SECRET.search(text) is not None


def quoted(value: object) -> str:
    """Return a wrong value as an error shows it: its length alone if it may be a secret.

    A text with `=` may be part of a connection string, and one that is longer than any right value anything.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # An integer may have more digits than Python writes.
        return f"a value of the type {type(value).__name__}"
    if isinstance(value, str) and ("=" in value or looks_secret(value) or len(value) > _SHOWN_CHARACTERS):
        return hidden(value)
    if "=" in text or looks_secret(text):
        return "a value that is not shown, as it may hold a secret"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def hidden(value: str) -> str:
    """Return the length of a value that is not shown."""
    return f"a value of {len(value)} characters that is not shown, as it may be a secret"
