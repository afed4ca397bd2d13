"""The content of a large event: what is stored in place of the message's body, and the message that names it.

This pattern is known as claim check:
https://learn.microsoft.com/azure/architecture/patterns/claim-check
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from relay.routes.mapping import Long, Value
from relay.servicebus.messages import CONTENT_TYPE, Message

ADDRESS = "dataRef"
"""The application property that has the content's address; a message without it has its body."""

SHA256 = "dataSha256"
LENGTH = "dataLength"
TYPE = "dataContentType"


@dataclass(frozen=True, slots=True)
class Content:
    """The body of a message, to be stored elsewhere.

    Attributes:
        name: Under which it is stored: the same for each try of an event, and another one for any other event or
            content. It shows neither.
        sha256: In hexadecimal digits.
    """

    name: str
    body: bytes
    sha256: str

    @classmethod
    def of(cls, message: Message) -> Content:
        """Return the content of a message."""
        sha256 = hashlib.sha256(message.body).hexdigest()
        event = json.dumps([message.partition_key, message.id]).encode()
        return cls(f"{sha256}/{hashlib.sha256(event).hexdigest()}", message.body, sha256)

    def claim(self, message: Message, address: str) -> Message:
        """Return the message with an empty body that takes the place of `message`, and says where its body is."""
        properties: dict[str, Value] = {
            **message.application_properties,
            ADDRESS: address,
            SHA256: self.sha256,
            LENGTH: Long(len(self.body)),
            TYPE: CONTENT_TYPE,
        }
        if "cloudEvents:specversion" in properties:
            # https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/extensions/dataref.md
            properties["cloudEvents:dataref"] = address
        return message._replace(body=b"", application_properties=properties)
