"""The consumer as a function app: a Service Bus topic trigger with sessions that calls the handler."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import azure.functions as func

from samples.contacts.consumer.changes import sequence_of
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle

app = func.FunctionApp()


@functools.cache
def directory() -> Directory:
    """Return the directory of this process.

    The first message opens it, on the event loop's thread, where it is used.
    """
    return Directory(Path(os.environ.get("DIRECTORY") or ".local/directory.sqlite"))


@app.service_bus_topic_trigger(
    arg_name="message",
    connection="SERVICEBUS",
    topic_name="%SERVICEBUS_TOPIC%",
    subscription_name="%SERVICEBUS_SUBSCRIPTION%",
    is_sessions_enabled=True,
)
async def keep_directory(message: func.ServiceBusMessage) -> None:
    """Handle a message. If this raises, Service Bus redelivers it, and dead-letters it after MaxDeliveryCount."""
    handle(message.get_body(), directory(), sequence_of(message.application_properties))
