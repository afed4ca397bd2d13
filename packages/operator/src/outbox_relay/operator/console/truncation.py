"""Limits to which untrusted text is cut: documents, messages and errors may have megabytes of it."""

from __future__ import annotations

from relay.backends.outbox import cut_text

ERROR = 4000
"""Maximum number of characters of an error, whose remedy stands at its end."""

REASON = 200
DETAIL = 1000
OWNER = 300
CONTENT = 4000


def both_ends(text: str, most: int) -> str:
    """Return a text of at most this many characters, without its middle if it is longer."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def was_cut(text: str, most: int) -> bool:
    """Return True if `relay.backends.outbox.cut_text` has left something out."""
    return len(text) == most and text.endswith("…")


def optional(text: str | None, most: int) -> str | None:
    """Return the beginning of a text, as `relay.backends.outbox.cut_text` does, or None for None."""
    return None if text is None else cut_text(text, most)
