"""The consumer as a function app: the Service Bus trigger, with sessions on, before the one handler."""

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
    """One for the process, opened by its first message, on the event loop's thread, which uses it."""
    return Directory(Path(os.environ.get("DIRECTORY") or ".local/directory.sqlite"))


@app.service_bus_topic_trigger(
    arg_name="message",
    connection="SERVICEBUS",
    topic_name="%SERVICEBUS_TOPIC%",
    subscription_name="%SERVICEBUS_SUBSCRIPTION%",
    is_sessions_enabled=True,
)
async def keep_directory(message: func.ServiceBusMessage) -> None:
    """Handle one message; raising has it delivered again, and dead-lettered after MaxDeliveryCount times."""
    handle(message.get_body(), directory(), sequence_of(message.application_properties))
