"""docs/contract/: the files are what they say they are, and say what docs/message-contract.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from outbox_relay.outbox.data_object import can_be_id
from outbox_relay.outbox.relayable import MAX_INTEGER
from relay.servicebus import messages
from tests.support.contract import ASYNCAPI, EVENT, FOLDER, ROOT, SCHEMAS, WRITTEN, at, declared
from tests.support.outbox import event, sound

PAGE = (ROOT / "docs" / "message-contract.md").read_text(encoding="utf-8")
SPECIFICATIONS = (
    ROOT / "packages" / "emulators" / "tests" / "languages" / "node_modules" / "@asyncapi" / "specs" / "schemas"
)
DOCUMENT = SCHEMAS["written-event.schema.json"]["examples"][0]


def with_changes(**changes: Any) -> dict[str, Any]:
    data = DOCUMENT["data"] | changes.pop("in_data", {})
    made = DOCUMENT | {"data": data} | changes
    return {name: value for name, value in made.items() if value is not ...}


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_schemas_are_of_2020_12(name: str) -> None:
    assert SCHEMAS[name]["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(SCHEMAS[name])


def test_the_documents_of_the_page_and_of_the_schema_are_as_a_writer_should_write_them() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    for document in (json.loads(shown), DOCUMENT, event("e1", "k")):
        WRITTEN.validate(document)
        EVENT.validate(document)


@pytest.mark.parametrize(
    "document",
    [
        *(with_changes(id=each) for each in ("a/b", "a\\b", "a?b", "a#b", "a\tb", "a\n", "a\rb", ".", "..")),
        *(with_changes(id=each) for each in ("%20", "a%2Fb", "a%ffb", "a ", "a\u00a0", "a\u3000")),
        with_changes(order=-1),
        with_changes(order="0"),
        with_changes(sequence=2**53),
        with_changes(sequence=1.5),
        with_changes(traceparent="0af7651916cd43dd8448eb211c80319c"),
        with_changes(ttl=0),
        with_changes(in_data={"action": ""}),
        with_changes(in_data={"createdAt": 1_700_000_000}),
        with_changes(in_data={"createdAt": "2026-02-09 11:37"}),
    ],
    ids=lambda document: str({k: v for k, v in document.items() if DOCUMENT[k] != v}),
)
def test_what_the_relay_publishes_and_a_writer_should_not_write(document: dict[str, Any]) -> None:
    sound(document)

    assert EVENT.is_valid(document)
    assert not WRITTEN.is_valid(document)
    assert can_be_id(document["id"]) is (document["id"] == DOCUMENT["id"])


@pytest.mark.parametrize("identifier", ["...", ".a", " a", "a b", "100%", "%2", "%g0", "é中😀", "a:b+c=d&e~f"])
def test_a_writer_may_write_ids_with_other_odd_characters(identifier: str) -> None:
    assert can_be_id(identifier)
    WRITTEN.validate(with_changes(id=identifier))


def test_the_integers_that_a_writer_may_write_are_those_that_every_outbox_keeps() -> None:
    [numbers] = re.findall(r"^### Numbers\n(.*?)^#", PAGE, re.MULTILINE | re.DOTALL)

    assert "±(2⁵³ - 1)" in numbers.replace("\u2212", "-")
    assert SCHEMAS["written-event.schema.json"]["properties"]["sequence"]["maximum"] == MAX_INTEGER == 2**53 - 1
    WRITTEN.validate(with_changes(sequence=MAX_INTEGER))


@pytest.mark.parametrize("missing", ["id", "partitionKey", "type", "data"])
def test_a_writer_leaves_out_nothing_that_is_required(missing: str) -> None:
    assert not WRITTEN.is_valid(with_changes(**{missing: ...}))


def test_the_optional_members_can_be_left_out() -> None:
    WRITTEN.validate(with_changes(order=..., sequence=..., traceparent=..., ttl=...))


@pytest.mark.slow
def test_the_asyncapi_document_is_one() -> None:
    if not SPECIFICATIONS.exists():
        pytest.skip("make languages has not installed @asyncapi/specs")
    schema = json.loads((SPECIFICATIONS / f"{ASYNCAPI['asyncapi']}.json").read_text(encoding="utf-8"))

    jsonschema_rs.Draft7Validator(schema, offline=True).validate(ASYNCAPI)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for name, text in value.items() if name == "$ref")
        for member in value.values():
            yield from references(member)
    elif isinstance(value, list):
        for member in value:
            yield from references(member)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    found = list(references(ASYNCAPI))

    assert found
    for reference in found:
        file, _, pointer = reference.partition("#")
        if file:
            assert (FOLDER / file).is_file()
            assert pointer == "/$defs/data"
            assert SCHEMAS[file]["$defs"]["data"]
        else:
            at(reference)


@pytest.mark.parametrize(
    ("name", "message_of"), [("event", messages.plain), ("cloudEvent", messages.cloudevents("/contacts"))]
)
def test_the_asyncapi_document_and_the_page_have_every_application_property(
    name: str, message_of: messages.Contract
) -> None:
    whole = sound(DOCUMENT | {"_ts": 1_700_000_000})

    sent = messages.with_original_id(message_of)(whole).application_properties

    names = set(sent)
    assert names == declared(at(f"#/components/messages/{name}/headers/$ref"))
    assert {given for given in names if f"`{given}`" not in PAGE} == set()
