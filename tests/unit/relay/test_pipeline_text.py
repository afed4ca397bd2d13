"""What comes as text is parsed within the attempt, so that its failure is logged and retried like any other."""

from __future__ import annotations

import logging

import pytest

from relay.assembly import assemble
from relay.cosmos.source import ChangeBatch
from relay.errors import ChangesError
from relay.settings import Settings

SETTINGS = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=AAAA;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey=AAAA",
}


async def test_text_that_is_not_json_fails_the_attempt_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    relay = assemble(Settings.from_environment(SETTINGS))

    with caplog.at_level(logging.ERROR, "relay"), pytest.raises(ChangesError, match="check --scan"):
        await relay.handle(ChangeBatch('[{"id": '), "i1")

    assert [getattr(record, "action", None) for record in caplog.records] == ["relay_failed"]
    await relay.close()


async def test_documents_of_other_types_in_the_text_are_counted() -> None:
    relay = assemble(Settings.from_environment(SETTINGS))

    outcome = await relay.handle(ChangeBatch('[{"id": "1", "type": "contact"}, null]'), "i1")

    assert (outcome.ignored, outcome.documents) == (2, 2)
    await relay.close()
