"""A failure of a thousand partition keys is some lines in the log, not some for each key or transfer.

Alerts live on the workspace's daily quota: what floods the log also silences them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.clients import HANDLERS
from relay.core.errors import PublishError
from relay.servicebus.key_sender import KeySender
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.broker import inject, set_topic_status
from tests.support.outbox import event

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

KEYS = 1000

# Lines and characters of an attempt's log, and characters of its exception, which the host logs.
MOST_LINES = 8
MOST_CHARACTERS = 20_000

Failing = Callable[[ServiceBusServer], Awaitable[object]]


def fault(kind: str, **fields: Any) -> Failing:
    async def injected(broker: ServiceBusServer) -> None:
        await inject(broker.admin_port, kind=kind, for_ms=60_000, **fields)

    return injected


FAILURES: dict[str, Failing] = {
    "throttled": fault("server-busy", entity="domain-events"),
    "an error of the service": fault("internal-error", entity="domain-events"),
    "refused for its content": fault("reject", entity="domain-events", condition="amqp:not-allowed"),
    "detached": fault("detach-link", entity="domain-events"),
    "the connection is reset": fault("end-on-transfer", entity="domain-events", how="reset"),
    "no answer": fault("delay-ack", entity="domain-events", ms=60_000),
    "no token": fault("refuse-token"),
    "disabled": lambda broker: set_topic_status(broker.admin_port, "SendDisabled"),
}


def heard(caplog: pytest.LogCaptureFixture) -> str:
    """Records that leave the relay's process with the worker's levels. In Azure the broker is another process."""
    records = (record for record in caplog.records if not record.name.startswith("outbox_relay.emulators"))
    return "\n".join(caplog.handler.format(record) for record in records)


@BOTH_SENDERS
@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES.keys())
async def test_a_failure_of_a_thousand_keys_is_some_lines(
    make_relay: RelayMaker, servicebus: ServiceBusServer, caplog: pytest.LogCaptureFixture, fails: Failing
) -> None:
    relay = make_relay(RELAY_SEND_TIMEOUT_S="2", RELAY_ATTEMPT_TIMEOUT_S="4")
    await fails(servicebus)

    for name in HANDLERS:
        caplog.set_level(logging.CRITICAL, logger=name)
    with (
        caplog.at_level(logging.WARNING, logger="azure"),
        caplog.at_level(logging.INFO),  # The last one is also the level of the handler.
        pytest.raises(PublishError) as failed,
    ):
        await relay.handle([event(f"e{number}", f"k{number}") for number in range(KEYS)], "i1")

    shown = heard(caplog)
    assert len(shown.splitlines()) <= MOST_LINES + str(failed.value).count("\n"), shown[:5000]
    assert len(shown) + len(str(failed.value)) < MOST_CHARACTERS


async def test_a_defect_that_stops_a_thousand_keys_is_one_traceback(
    make_relay: RelayMaker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(KeySender, "send_in_order", broken)

    with caplog.at_level(logging.INFO), pytest.raises(PublishError):
        await make_relay().handle([event(f"e{number}", f"k{number}") for number in range(KEYS)], "i1")

    assert heard(caplog).count("Traceback") == 1
