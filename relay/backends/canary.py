"""The canary of `python -m relay smoke`: an event with every kind of value that could be altered on the way."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

ACTION = "SmokeTest"
PREFIX = "smoke-"

# The first bytes of a canary's id: an id of this kind is recognized although nothing else of the event is left.
_MARK = b"smoke"

# Long enough for a slow deployment, short enough that an event that is not deleted expires the same day.
TTL_S = 3600

# Strings that Newtonsoft.Json in the Functions host could parse as a date, and some that only look like one.
DATES = {
    "sevenDigitsAndOffset": "2021-09-22T11:07:37.3022907+02:00",
    "sevenZeros": "2019-01-01T00:00:01.0000000Z",
    "utc": "2026-02-09T09:37:37Z",
    "lowerCaseUtc": "2026-02-09t09:37:37z",
    "trailingZero": "2026-02-09T09:37:37.120Z",
    "noZone": "2026-02-09T09:37:37",
    "negativeOffset": "2026-02-09T09:37:37.5-08:00",
    "oddOffset": "2026-02-09T09:37:37+05:45",
    "midnightAt24": "2026-02-09T24:00:00Z",
    "nineDigits": "2026-02-09T09:37:37.123456789Z",
    "dateAlone": "2019-01-01",
    "firstDay": "0001-01-01",
    "firstMoment": "0001-01-01T00:00:00",
    "lastMoment": "9999-12-31T23:59:59.9999999Z",
    "microsoft": "/Date(1234567890123+0200)/",
    "noDate": "2026-02-30T00:00:00Z",
    "within": "at 2026-02-09T09:37:37.120Z sharp",
}

_SHAPES: dict[str, Any] = {
    "dates": {**DATES, "inAList": list(DATES.values()), "deeper": [{"still": [DATES["sevenZeros"]]}]},
    "integers": [
        0,
        -1,
        2**31 - 1,
        -(2**31),
        2**31,
        2**53 - 1,
        -(2**53 - 1),
        2**53 + 1,
        2**63 - 1,
        12345678901234567,
    ],
    "floats": [1.0, -0.0, 0.1, 1e300, 1e-7, 5e-324, 1.7976931348623157e308, 3.141592653589793, 100.0, 1e15],
    "numbersAsText": ["1", "1.0", "007", "1e3", "NaN", "true", "null", ""],
    "literals": [True, False, None],
    "empty": [{}, [], "", [[]], [{}], {"a": {}}],
    "nested": {"a": [{"b": [{"c": [{"d": [[[["deep"]]]]}]}]}]},
    "unicode": [
        "é",
        "e\u0301",
        "Ωμέγα",
        "美咲",
        "😀👩‍👩‍👧",
        "\U0010ffff",
        "\u2028\u2029",
        "\ufeffbom",
        "\u200b",
        "ﬀ",
    ],
    "control": ["\x00", "\x01\x1f", "\t\r\n", "\b\f", "\x7f", "\x85"],
    "escapes": [
        "\\",
        "\\\\",
        "\\n",
        "\\u0041",
        "\\ud800",
        "/",
        "</script>",
        '"',
        "'",
        "&amp;",
        "%20",
        "${x}",
        "{{y}}",
    ],
    "spaces": [" leading", "trailing ", "  ", "\u00a0"],
    "long": "0123456789abcdef" * 1024,
    "keys": {
        "$type": "System.String, mscorlib",
        "$id": "1",
        "$ref": "1",
        "_ts": 1,
        "_etag": "x",
        "id": "not the document's",
        "ttl": -1,
        "date": DATES["sevenZeros"],
        "type": "nested",
        "Case": 1,
        "case": 2,
        "with space": 1,
        "with.dot": 1,
        "with/slash": 1,
        "ключ": 1,
        DATES["utc"]: "a date for a key",
    },
}


def canary_id() -> str:
    """Return a UUID (version 8) that begins with the letters of `smoke`, and is random otherwise."""
    random = bytearray(_MARK + secrets.token_bytes(16 - len(_MARK)))
    random[6] = random[6] & 0x0F | 0x80
    random[8] = random[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(random)))


def is_canary(identifier: object) -> bool:
    """Return True if this is the id of a canary: as text, or as the bytes of a UUID."""
    if isinstance(identifier, bytes):
        return identifier.startswith(_MARK)
    return str(identifier).replace("-", "").lower().startswith(_MARK.hex())


def canary(event_type: str, moment: datetime, action: str = ACTION) -> dict[str, Any]:
    """Return a canary document to be written at `moment`, with a partition key of its own."""
    key = f"{PREFIX}{uuid4()}"
    created_at = moment.astimezone(timezone(timedelta(hours=2)))
    return {
        "id": canary_id(),
        "partitionKey": key,
        "type": event_type,
        "ttl": TTL_S,
        "traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
        "data": {
            "action": action,
            # Seven digits, as .NET writes them; the last is a zero, which parsing and formatting would drop.
            "createdAt": created_at.strftime("%Y-%m-%dT%H:%M:%S.%f0+02:00"),
            **_SHAPES,
        },
    }
