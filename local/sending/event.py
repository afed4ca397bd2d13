"""The event that `python -m local send` writes, as the message contract has it, and the port that commits it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from outbox_relay.outbox.events import new_id, now
from outbox_relay.outbox.relayable import check_values
from relay.core.documents import SourceDocument

EVENT_TYPE = "domainEvent"
# Seconds after which Cosmos DB deletes it: ten days, as `outbox` writes it.
TTL_S = 864_000


class NotCommittedError(Exception):
    """The outbox refused the event, or could not be reached; the message says why."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An event that was committed.

    Attributes:
        document: As the relay reads it.
        number: Its number within its partition key; None where its outbox has no such numbers.
    """

    document: SourceDocument
    number: int | None = None


class Writer(Protocol):
    """Commits events as a service would."""

    async def commit(self, event: Event, /) -> Commit:
        """Commit it in its own transaction.

        Raises:
            NotCommittedError: Its id is in use or could not be read, or the outbox refused it.
            InvalidDocument: It must not be written at all.
            Unplaceable: The outbox has one place for two of its fields.
        """


class WordError(ValueError):
    """A word of the command line is not a field; the message says which, and how it is written."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that is to be committed.

    Attributes:
        partition_key: The key whose order is kept.
        action: What happened: the message's subject.
        fields: The rest of its data.
        type: The type of its document; None for one that the relay takes.
        id: Unique within the topic.
        created_at: RFC 3339.
    """

    partition_key: str
    action: str
    fields: Mapping[str, Any]
    type: str | None = None
    id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=now)

    @property
    def data(self) -> dict[str, Any]:
        """The message's body."""
        return {**self.fields, "action": self.action, "createdAt": self.created_at}

    def document(self, sequence: int | None) -> dict[str, Any]:
        """Return the event document, as number `sequence` of its partition key, or without a number.

        Raises:
            InvalidDocument: The Functions host could not hand it over, and would wait at it.
        """
        document = {
            "id": self.id,
            "partitionKey": self.partition_key,
            "type": self.type or EVENT_TYPE,
            "data": self.data,
            "order": 0,
            **({} if sequence is None else {"sequence": sequence}),
            "ttl": TTL_S,
        }
        check_values(document, f"{self.action} '{self.id}'")
        return document


def parse_fields(words: Iterable[str], data: str | None = None) -> dict[str, Any]:
    """Parse the fields of an event's data.

    Args:
        words: `name=value` for a string, or `name:=value` for any JSON value.
        data: A JSON object, or `@` and the name of a file that has it, `-` for standard input; the words take
            precedence over it.

    Raises:
        WordError: A word or the data is neither; the message has the file, and the position in it.
    """
    fields = {} if data is None else _object(data)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.removesuffix(":"):
            raise WordError(f"'{word}' is not a field: write name=value, or name:=JSON if not a string")
        if name.endswith(":"):
            fields[name[:-1]] = _parse(value, word)
        else:
            fields[name] = value
    return fields


def _object(data: str) -> dict[str, Any]:
    name = f"--data {data}" if data.startswith("@") else "--data"
    found = _parse(_read(data) if data.startswith("@") else data, name)
    if not isinstance(found, dict):
        raise WordError(f'{name} must be a JSON object, such as \'{{"name": "Jane"}}\'')
    return found


def _read(data: str) -> str:
    """Return the text of `@FILE`, or of standard input for `@-`."""
    try:
        raw = sys.stdin.buffer.read() if data == "@-" else Path(data[1:]).read_bytes()
        # Some editors, and PowerShell, begin a file with a byte order mark.
        return raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise WordError(f"--data {data}: cannot be read: {why}") from error


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise WordError(f"{name}: not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise WordError(f"{name}: not JSON: {error}") from None
