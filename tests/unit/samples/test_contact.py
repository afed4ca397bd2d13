"""The contact and its value objects, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outbox_relay.outbox.data_object import EntityState, Position, entity_object, event_object
from outbox_relay.outbox.versions import mark_saved, restore
from samples.contacts.domain import Company, Contact, InvalidContact, Name

JOHN = Name("John", "Doe")
CONTOSO = Company("Contoso", "Street", "1a", "092821", "Palo Alto", "US")
ID = "b5e2e7aa-4982-4735-9422-c39a7c4af5c2"


def new_contact() -> Contact:
    return Contact(JOHN, "johndoe@contoso.com", CONTOSO, "This is a contact", id=ID)


def stored_contact() -> Contact:
    contact = new_contact()
    save(contact, '"1"')
    return contact


def save(contact: Contact, etag: str) -> None:
    mark_saved(contact, etag, {event.id for event in contact.domain_events}, 1)


def document(contact: Contact) -> dict[str, Any]:
    return entity_object(contact, EntityState.CREATED, None, 1).to_document()


def event_data(contact: Contact) -> list[dict[str, Any]]:
    """The data of the event documents, without the fields that differ each time."""
    documents = [
        event_object(event, contact, Position(1, 0), document_type="domainEvent", ttl=60, traceparent=None)
        for event in contact.domain_events
    ]
    return [
        {name: value for name, value in source.data.items() if name not in ("id", "createdAt")}
        for source in documents
    ]


def test_a_contact_is_stored_in_the_shape_of_the_article() -> None:
    contact = new_contact()

    assert document(contact) == {
        "id": ID,
        "partitionKey": ID,
        "type": "contact",
        "data": {
            "name": {"firstName": "John", "lastName": "Doe"},
            "description": "This is a contact",
            "email": "johndoe@contoso.com",
            "company": {
                "companyName": "Contoso",
                "street": "Street",
                "houseNumber": "1a",
                "postalCode": "092821",
                "city": "Palo Alto",
                "country": "US",
            },
            "createdAt": contact.created_at,
            "modifiedAt": None,
            "version": 1,
            "deleted": False,
            "id": ID,
        },
        "ttl": -1,
        "sequence": 1,
    }


def test_a_new_contact_has_one_event_with_its_whole_state() -> None:
    contact = new_contact()
    contact.set_name(Name("Jane", "Doe"))
    contact.set_description("Another")

    assert event_data(contact) == [
        {
            "version": 1,
            "name": {"firstName": "Jane", "lastName": "Doe"},
            "description": "Another",
            "email": "johndoe@contoso.com",
            "company": CONTOSO.to_data(),
            "contactId": ID,
            "action": "ContactCreatedEvent",
        }
    ]
    assert contact.modified_at is None


@pytest.mark.parametrize(
    ("change", "action", "content"),
    [
        (
            lambda contact: contact.set_name(Name("Jane", "Doe")),
            "ContactNameUpdatedEvent",
            {"name": {"firstName": "Jane", "lastName": "Doe"}},
        ),
        (
            lambda contact: contact.set_email("jane@contoso.com"),
            "ContactEmailUpdatedEvent",
            {"email": "jane@contoso.com"},
        ),
        (
            lambda contact: contact.set_company(Company("Fabrikam")),
            "ContactCompanyUpdatedEvent",
            {"company": Company("Fabrikam").to_data()},
        ),
        (lambda contact: contact.set_description(""), "ContactDescriptionUpdatedEvent", {"description": ""}),
        (lambda contact: contact.delete(), "ContactDeletedEvent", {}),
    ],
)
def test_each_change_raises_its_event_with_the_next_version(
    change: Callable[[Contact], None], action: str, content: dict[str, Any]
) -> None:
    contact = stored_contact()

    change(contact)

    assert event_data(contact) == [{"version": 2, **content, "contactId": ID, "action": action}]
    assert contact.version == 2
    assert contact.modified_at is not None


def test_setting_the_same_value_is_not_a_change() -> None:
    contact = stored_contact()

    contact.set_name(Name("John", "Doe"))
    contact.set_email("johndoe@contoso.com")
    contact.set_company(Company.from_data(CONTOSO.to_data()))
    contact.set_description("This is a contact")

    assert (contact.domain_events, contact.version, contact.modified_at) == ((), 1, None)


def test_all_events_of_a_commit_have_the_same_version() -> None:
    contact = stored_contact()
    contact.set_email("a@b")
    contact.set_description("x")
    first = [event["version"] for event in event_data(contact)]
    save(contact, '"2"')
    contact.set_email("c@d")

    assert first == [2, 2]
    assert [event["version"] for event in event_data(contact)] == [3]


def test_a_restored_contact_equals_the_stored_one() -> None:
    contact = stored_contact()
    contact.set_email("a@b")
    stored = document(contact)

    again = restore(Contact, {**stored, "_etag": '"2"'})

    assert document(again) == stored
    assert (again.domain_events, again.etag) == ((), '"2"')
    again.set_email("c@d")
    assert again.version == 3


def test_the_state_cannot_be_set_from_outside() -> None:
    contact = new_contact()

    for name in ("name", "email", "company", "description", "created_at", "modified_at", "version"):
        with pytest.raises(AttributeError):
            setattr(contact, name, "other")


@pytest.mark.parametrize("text", ["", " ", "\t", "a\nb", "a\n", "a\x00", "\x7f", "\x85", "x" * 201])
def test_a_name_is_one_line_and_not_blank(text: str) -> None:
    with pytest.raises(InvalidContact, match="first name"):
        Name(text, "Doe")
    with pytest.raises(InvalidContact, match="last name"):
        Name("John", text)
    with pytest.raises(InvalidContact, match="company's name"):
        Company(text)


@pytest.mark.parametrize("field", ["street", "house_number", "postal_code", "city", "country"])
def test_other_fields_of_a_company_may_be_empty_but_have_one_line(field: str) -> None:
    assert getattr(Company("Contoso", **{field: ""}), field) == ""
    with pytest.raises(InvalidContact, match="one line"):
        Company("Contoso", **{field: "a\nb"})


@pytest.mark.parametrize(
    "text", ["", "john", "@contoso.com", "john@", "a b@c", "a@b@c", "a@b\n", "x" * 250 + "@b.de"]
)
def test_an_invalid_email_address_is_rejected_and_changes_nothing(text: str) -> None:
    contact = stored_contact()

    with pytest.raises(InvalidContact, match="email"):
        contact.set_email(text)

    assert (contact.email, contact.domain_events) == ("johndoe@contoso.com", ())


def test_a_description_has_at_most_4000_characters() -> None:
    contact = stored_contact()
    contact.set_description("\n" * 4000)

    with pytest.raises(InvalidContact, match="4001 characters"):
        contact.set_description("x" * 4001)
