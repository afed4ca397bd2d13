"""Ids, keys and other text of any characters in columns of an SQL database.

JSON text has any string, as it can escape every character. A column cannot: PostgreSQL has no U+0000 in text, no
database has lone surrogates, and SQL Server takes `a` and `a` with a space behind it for equal. So:

- `\\`, U+0000 and each lone surrogate are written as `\\u` and four hexadecimal digits. Nothing else is changed,
  so no two texts become one.
- In ids, by which items are found, every space is written so too. The beginning of an id stays a beginning.
- Items are found by a digest of their partition key, which may be longer than an index takes.
"""

from __future__ import annotations

import hashlib
import re

_ESCAPED = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")
_WILDCARD = re.compile(r"([!%_\[])")


def encode(text: str) -> str:
    """A text as it stands in a column."""
    return _ESCAPED.sub(_escape, text)


def decode(text: str) -> str:
    """The text of a column, or the id."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)


def encode_id(identifier: str) -> str:
    """An id, or the beginning of one, as it stands in a column."""
    return encode(identifier).replace(" ", "\\u0020")


def ids_beginning(beginning: str) -> str:
    """A pattern for `like … escape '!'` that matches the ids with this beginning."""
    return _WILDCARD.sub(r"!\1", encode_id(beginning)) + "%"


def digest(partition_key: str) -> str:
    """What items of a partition key are found by: 64 hexadecimal digits."""
    return hashlib.sha256(partition_key.encode(errors="surrogatepass")).hexdigest()


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"
