"""The change batch as the trigger delivers it: the text of a JSON array, parsed where a failure has a name.

The Functions worker decodes a trigger's value before the function runs, and azure-functions does so with orjson
where that is installed. Integers of more than 64 bits then become floats, and an integer of more than 308 digits
is an error that no function can catch: its lease would be stuck. So the worker is given a decoder that keeps the
text, and the standard library parses it. That costs less than to look for long integers and to leave the rest to
orjson.
"""

from __future__ import annotations

import json
import math
from typing import Any

import azure.functions as func
from azure.functions import meta
from azure.functions.cosmosdb import CosmosDBTriggerConverter

from relay.errors import ChangesError
from relay.events import Document


class ChangeBatch(func.DocumentList):
    """One batch of changes, as text; a DocumentList like any other to whoever iterates over it."""

    def __init__(self, text: str) -> None:
        # UserList's own constructor would store a list, where `data` is worked out from the text.
        self.text = text

    @property
    def data(self) -> list[func.Document | None]:  # type: ignore[override]
        """What a DocumentList holds. Raises ChangesError."""
        return [None if each is None else func.Document.from_dict(dict(each)) for each in self.documents()]

    def documents(self) -> list[Document | None]:
        """The documents, value for value.

        Raises:
            ChangesError: The text is not a JSON array of objects.
        """
        return parse(self.text)


def parse(text: str) -> list[Document | None]:
    """The documents in the text of a JSON array, value for value. Raises ChangesError."""
    try:
        documents = json.loads(text, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ChangesError(
            f"the trigger delivered {len(text)} characters that are not JSON: {error}. The checkpoint is "
            "withheld. See which document it is with `python -m relay check --scan`."
        ) from error
    if not isinstance(documents, list):
        documents = [documents]
    if any(not isinstance(document, dict | None) for document in documents):
        raise ChangesError(f"the trigger delivered {len(documents)} values that are not all JSON objects")
    return documents


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"a number of {len(digits)} characters is beyond the range of a double")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def install_decoder() -> None:
    """Make the worker hand the trigger's text to the function, in this process.

    azure-functions (1.26.0 and 2.3.0) has no public way to have a Cosmos DB trigger's value undecoded: the binding
    accepts a DocumentList alone. Its converter's method is replaced, for the trigger only.
    """

    def decode(data: meta.Datum | None, *, trigger_metadata: Any) -> ChangeBatch | None:
        if data is None or data.type is None:
            return None
        if data.type in ("string", "json"):
            return ChangeBatch(data.value)
        if data.type == "bytes":
            return ChangeBatch(data.value.decode())
        raise NotImplementedError(f"the trigger's value is of the type {data.type!r}; a text was expected")

    CosmosDBTriggerConverter.decode = staticmethod(decode)  # type: ignore[method-assign]
