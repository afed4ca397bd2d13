"""Sends recorded requests of the .NET SDK again, and compares each reply with the one that the SDK accepted.

Most generated values (ETags, LSNs, `_rid`s of databases and containers) must be as recorded, as clock and random
numbers are the recording's. The others are mapped, one live value to each recorded one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from outbox_relay.emulators.testing import Answer, RawClient
from packages.emulators.tests.cosmos.groundwork import Groundwork
from packages.emulators.tests.cosmos.recordings import Exchange
from packages.emulators.tests.cosmos.rows import results_in

_IDENTITIES = ("_rid", "_self", "_etag")
_UNCOMPARED_HEADERS = ("x-ms-request-charge", "x-ms-documentdb-query-metrics")
# What the recorded emulator said of a missing container. The service's gateway says 0; 1003 is of direct mode.
_CORRECTED = ("x-ms-substatus", "1003", "0")
# What the recorded emulator said, and the service does not, where an item was not found.
_NOT_OF_THE_SERVICE = "x-ms-content-path"
_ROOT_KEYS_OF_THE_ADDRESS = ("writableLocations", "readableLocations")


class Replay:
    """One recording against one emulator."""

    def __init__(self, groundwork: Groundwork, client: RawClient) -> None:
        self._groundwork = groundwork
        self._client = client
        self._live: dict[str, str] = {}

    async def send(self, exchange: Exchange) -> Answer:
        """Put in place what the exchange takes for granted, then send its request."""
        self._groundwork.prepare(exchange)
        body = exchange.body
        if body is not None and not exchange.is_row_batch:
            body = self._translate(body.decode()).encode()
        headers = {name: self._translate(value) for name, value in exchange.headers.items()}
        return await self._client.send(
            exchange.method, self._translate(exchange.path), headers=headers, body=body, encoded=True
        )

    def differences(self, exchange: Exchange, answer: Answer) -> list[str]:
        """Differences between the live reply and the recorded one, in both directions."""
        if answer.status != exchange.status:
            return [f"status {answer.status} instead of {exchange.status}: {answer.text[:300]}"]
        found = list(self._header_differences(exchange, answer))
        if exchange.reply is not None:
            found += self._body_differences(exchange.reply, answer.body, exchange)
        if exchange.reply_rows is not None:
            recorded, live = (_without_texts(results_in(body)) for body in (exchange.reply_rows, answer.content))
            found += self._compare(recorded, live, "")
        return found

    def _translate(self, text: str) -> str:
        for recorded, live in self._live.items():
            text = text.replace(recorded, live)
        return text

    def _header_differences(self, exchange: Exchange, answer: Answer) -> Iterator[str]:
        for name, recorded in exchange.reply_headers.items():
            live = answer.headers.get(name)
            if name in _UNCOMPARED_HEADERS or live == recorded or (name, recorded, live) == _CORRECTED:
                continue
            if live is None and name == _NOT_OF_THE_SERVICE and _found_no_item(exchange):
                continue
            is_identity = name == "x-ms-continuation" or (name == "etag" and not exchange.is_change_feed)
            if live is None or not (is_identity and self._is_same(recorded, live)):
                yield f"header {name}: {live!r} instead of {recorded!r}"

    def _body_differences(self, recorded: Any, live: Any, exchange: Exchange) -> Iterator[str]:
        if exchange.status >= 400:
            if live["code"] != recorded["code"]:
                yield f"code {live['code']} instead of {recorded['code']}"
        elif exchange.path == "/":
            yield from self._account_differences(recorded, live)
        else:
            yield from self._compare(recorded, live, "")

    def _account_differences(self, recorded: dict[str, Any], live: dict[str, Any]) -> Iterator[str]:
        engine = "queryEngineConfiguration"
        yield from self._compare(json.loads(recorded.pop(engine)), json.loads(live.pop(engine)), engine)
        for key in _ROOT_KEYS_OF_THE_ADDRESS:
            recorded.pop(key), live.pop(key)
        yield from self._compare(recorded, live, "")

    def _compare(self, recorded: Any, live: Any, where: str) -> Iterator[str]:
        if isinstance(recorded, dict) and isinstance(live, dict):
            if recorded.keys() != live.keys():
                yield f"{where}: {sorted(live)} instead of {sorted(recorded)}"
                return
            for key, value in recorded.items():
                if key in _IDENTITIES and self._is_same(value, live[key]):
                    continue
                yield from self._compare(value, live[key], f"{where}/{key}")
        elif isinstance(recorded, list) and isinstance(live, list):
            if len(recorded) != len(live):
                yield f"{where}: {len(live)} instead of {len(recorded)} elements"
                return
            for index, (one, other) in enumerate(zip(recorded, live, strict=True)):
                yield from self._compare(one, other, f"{where}/{index}")
        elif recorded != live or type(recorded) is not type(live):
            yield f"{where}: {live!r} instead of {recorded!r}"

    def _is_same(self, recorded: str, live: str) -> bool:
        """Return True if two generated values may be equivalent.

        Each recorded one always has the same live one.
        """
        return self._live.setdefault(recorded, live) == live


def _without_texts(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the messages of refusals, which clients do not read, as elsewhere in the comparison."""
    return [
        {key: value for key, value in result.items() if key != "body" or result["status"] < 400}
        for result in results
    ]


def _found_no_item(exchange: Exchange) -> bool:
    rows = [] if exchange.reply_rows is None else results_in(exchange.reply_rows)
    return any(status == 404 for status in (exchange.status, *(row["status"] for row in rows)))
