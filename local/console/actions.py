"""The actions on the stack's page: its forms and buttons, and the routes behind them.

The console's own guard serves them to its page alone: a request that changes something needs the page's origin,
and a Host of this machine.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from local.console.faults import inject, offered
from local.console.topic import EmulatorTopic
from local.sending.event import Event, NotCommittedError, WordError, parse_fields
from local.sending.outboxes import open_writer
from local.sending.routed import Outbox
from local.stack.parts import PartFailed
from local.stack.supervisor import Stack
from outbox_relay.command_line import Call
from outbox_relay.operator.cli import quarantine
from outbox_relay.operator.cli.main import run
from outbox_relay.operator.cli.options import OneOutbox
from outbox_relay.operator.cli.terminal import Result, Terminal
from outbox_relay.operator.console.application import PAGES
from outbox_relay.operator.console.ports import Extension
from outbox_relay.operator.examples import Unplaceable
from outbox_relay.outbox import InvalidDocument
from relay.config.settings import Settings
from relay.config.streams import names_of
from relay.core.events import Reason

OPERATIONS: Mapping[str, Callable[..., Awaitable[Result]]] = {
    "release": quarantine.release,
    "discard": partial(quarantine.discard, yes=True, why="on the page of the local stack"),
}


async def change(
    operation: str,
    environment: Mapping[str, str],
    stream: str | None,
    *,
    ids: Sequence[str] = (),
    reason: Reason | None = None,
) -> tuple[bool, str]:
    """Do one of OPERATIONS to the records of a stream with these ids, or to those of a reason.

    The only stream of a stack needs no name.

    Returns:
        Whether everything was done, and what the command prints.
    """
    chosen = {"choice": quarantine.Choice(reason=reason), "options": OneOutbox(stream=stream)}
    call = Call(f"quarantine {operation}", OPERATIONS[operation], tuple(ids), chosen)
    out, notes = io.StringIO(), io.StringIO()
    code = await run(call, environment, Terminal(as_json=False, out=out, err=notes, stdin=io.StringIO()))
    return code == 0, (out.getvalue() or notes.getvalue()).strip()


_FOLDER = Path(__file__).parent
TEMPLATES = _FOLDER / "templates"


class Actions:
    """The handlers of the page of a stream.

    Each answers with a fragment of the page that says what was done, or why it was not.
    """

    def __init__(self, stack: Stack, streams: Sequence[Settings], stream: Settings, topic: EmulatorTopic) -> None:
        """`stream` is one of all `streams` of the stack, and `topic` its topic or queue."""
        self._stack = stack
        self._stream = stream
        others = [each for each in streams if each.outbox == stream.outbox and each is not stream]
        # An event that several could take is made for the stream of the page.
        self._outbox = Outbox([stream, *others])
        self._topic = topic

    @property
    def extension(self) -> Extension:
        """The blocks of the page, and its routes."""
        return Extension(
            "local",
            TEMPLATES,
            routes=[
                web.get("/local/actions", self.actions),
                web.get("/local/peek", self.peek),
                web.post("/local/send", self.send),
                web.post("/local/fault", self.fault),
                web.post("/local/quarantine", self.quarantine),
            ],
            static=_FOLDER / "static",
        )

    async def actions(self, request: web.Request) -> web.Response:
        """Return the buttons of the faults."""
        return _html(request, "faults.html", faults=offered(self._stack.source))

    async def send(self, request: web.Request) -> web.Response:
        """Commit an event to the stream's outbox: `key`, `action` and `data`, a JSON object or nothing."""
        form = await _form(request)
        key, action = str(form.get("key", "")).strip(), str(form.get("action", "")).strip()
        if not key or not action:
            return _said(request, False, "An event needs a partition key and an action.")
        try:
            event = Event(key, action, parse_fields([], str(form.get("data", "")).strip() or None))
            async with open_writer(self._outbox) as writer:
                commit = await writer.commit(event)
        except (WordError, NotCommittedError, InvalidDocument, Unplaceable) as error:
            return _said(request, False, str(error).replace("--data", "The data"))
        if why := self._outbox.why_ignored(commit.document):
            return _said(request, False, f"Committed {action}, which the relay does not publish: {why}")
        taking = [each for each in self._outbox.streams if each.selection.takes(commit.document)]
        if self._stream not in taking:
            return _said(request, True, f"Committed {action} for another stream: see {names_of(taking)}.")
        number = "an event" if commit.number is None else f"number {commit.number}"
        return _said(request, True, f"Committed {action} as {number} of", key=key)

    async def fault(self, request: web.Request) -> web.Response:
        """Inject the fault `kind`."""
        kind = (await _form(request)).get("kind")
        for fault in offered(self._stack.source):
            if fault.name == kind:
                try:
                    await inject(self._stack, self._stream, fault)
                except (aiohttp.ClientError, TimeoutError, PartFailed) as error:
                    return _said(request, False, f"{fault.label}: {error}")
                return _said(request, True, fault.effect)
        return _said(request, False, "There is no such fault.")

    async def quarantine(self, request: web.Request) -> web.Response:
        """Do `operation`, release or discard, to the records of a `reason`, or to the one with this `id`."""
        form = await _form(request)
        operation, reason, identifier = (str(form.get(name, "")) for name in ("operation", "reason", "id"))
        if operation not in OPERATIONS or bool(reason) == bool(identifier):
            return _said(request, False, "Give an operation, release or discard, and either a reason or an id.")
        if reason and reason not in set(Reason):
            return _said(request, False, f"There is no reason '{reason}'.")
        done, said = await change(
            operation,
            self._stack.operator_settings,
            self._stream.stream if self._stream.several else None,
            ids=[identifier] if identifier else [],
            reason=Reason(reason) if reason else None,
        )
        return _said(request, done, said)

    async def peek(self, request: web.Request) -> web.Response:
        """Return the messages that wait at a `subscription` longest, with their content. Locks none."""
        name = request.query.get("subscription", "")
        waiting = await self._topic.waiting(name)
        return _html(request, "peeked.html", subscription_name=name, messages=waiting)


async def _form(request: web.Request) -> Mapping[str, object]:
    """Return the fields of a form. Raises HTTPBadRequest if the body is none."""
    try:
        return await request.post()
    except (ValueError, LookupError, web.RequestPayloadError) as error:
        raise web.HTTPBadRequest(text=f"The body is not a form: {error}\n") from error


def _said(request: web.Request, done: bool, text: str, key: str | None = None) -> web.Response:
    return _html(request, "said.html", done=done, text=text, key=key)


def _html(request: web.Request, template: str, **values: Any) -> web.Response:
    body = request.app[PAGES].fragment(f"local/{template}", **values).encode("utf-8", "replace")
    return web.Response(body=body, content_type="text/html", charset="utf-8")
