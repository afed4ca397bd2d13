"""The resources: contacts, and each of what can be changed of one."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from outbox import NotModified
from samples.contacts.api.conditions import EntityTags, demanded_version, known_version
from samples.contacts.api.openapi import ETAG, LOCATION, problems
from samples.contacts.api.schemas import (
    Changes,
    CompanyBody,
    ContactPage,
    DescriptionBody,
    EmailBody,
    ListedContact,
    NameBody,
    NewContact,
    StoredContact,
)
from samples.contacts.domain import Contact
from samples.contacts.service import Contacts

router = APIRouter(prefix="/contacts", tags=["contacts"])

_DEFAULT_PAGE = 50
_LARGEST_PAGE = 200
_CHANGED = {
    200: {"headers": ETAG},
    **problems(HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED),
}


async def contacts_of(request: Request) -> Contacts:
    """The use cases on the container that was opened when the server started."""
    contacts: Contacts = request.app.state.contacts
    return contacts


Service = Annotated[Contacts, Depends(contacts_of)]
Demanded = Annotated[EntityTags, Depends(demanded_version)]
Known = Annotated[EntityTags, Depends(known_version)]


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={201: {"headers": {**ETAG, **LOCATION}}, **problems(HTTPStatus.CONFLICT)},
)
async def create_contact(new: NewContact, contacts: Service, response: Response) -> StoredContact:
    """Create a contact. 409 where the chosen id is taken."""
    contact = await contacts.create(new.to_contact())
    response.headers["Location"] = f"/contacts/{contact.id}"
    return _versioned(contact, response)


@router.get("", responses=problems())
async def list_contacts(
    contacts: Service,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=_LARGEST_PAGE)] = _DEFAULT_PAGE,
    continuation: Annotated[str | None, Query(description="That of the page before.")] = None,
) -> ContactPage:
    """Page through the contacts, in no particular order. 400 where `continuation` is none of this API's."""
    page = await contacts.read_page(page_size, continuation)
    return ContactPage(items=[ListedContact.of(contact) for contact in page.items], continuation=page.continuation)


@router.get(
    "/{contact_id}",
    response_model=StoredContact,
    responses={
        200: {"headers": ETAG},
        304: {"description": "Unchanged.", "headers": ETAG},
        **problems(HTTPStatus.NOT_FOUND),
    },
)
async def read_contact(
    contact_id: UUID, known: Known, contacts: Service, response: Response
) -> StoredContact | Response:
    """Read a contact. 304 where the client has this version already."""
    try:
        contact = await contacts.read(str(contact_id), if_none_match=known.single)
    except NotModified:
        return _unchanged(known.single)
    if known.match_weakly(contact.etag or ""):
        return _unchanged(contact.etag)
    return _versioned(contact, response)


@router.patch("/{contact_id}", responses=_CHANGED)
async def change_contact(
    contact_id: UUID, changes: Changes, demanded: Demanded, contacts: Service, response: Response
) -> StoredContact:
    """Change several things at once: one commit, with an event for each."""
    return await _change(contacts, contact_id, demanded, changes.apply_to, response)


@router.put("/{contact_id}/name", responses=_CHANGED)
async def set_name(
    contact_id: UUID, name: NameBody, demanded: Demanded, contacts: Service, response: Response
) -> StoredContact:
    """Give a contact another name."""
    value = name.to_value()
    return await _change(contacts, contact_id, demanded, lambda contact: contact.set_name(value), response)


@router.put("/{contact_id}/email", responses=_CHANGED)
async def set_email(
    contact_id: UUID, body: EmailBody, demanded: Demanded, contacts: Service, response: Response
) -> StoredContact:
    """Give a contact another email address."""
    return await _change(contacts, contact_id, demanded, lambda contact: contact.set_email(body.email), response)


@router.put("/{contact_id}/company", responses=_CHANGED)
async def set_company(
    contact_id: UUID, company: CompanyBody, demanded: Demanded, contacts: Service, response: Response
) -> StoredContact:
    """Give a contact another company, or its company another address."""
    value = company.to_value()
    return await _change(contacts, contact_id, demanded, lambda contact: contact.set_company(value), response)


@router.put("/{contact_id}/description", responses=_CHANGED)
async def set_description(
    contact_id: UUID, body: DescriptionBody, demanded: Demanded, contacts: Service, response: Response
) -> StoredContact:
    """Describe a contact anew."""
    text = body.description
    return await _change(contacts, contact_id, demanded, lambda contact: contact.set_description(text), response)


@router.delete(
    "/{contact_id}",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED),
)
async def delete_contact(contact_id: UUID, demanded: Demanded, contacts: Service) -> None:
    """Delete a contact. Its id stays taken."""
    await contacts.delete(str(contact_id), demanded.match_strongly)


async def _change(
    contacts: Contacts,
    contact_id: UUID,
    demanded: EntityTags,
    apply: Callable[[Contact], None],
    response: Response,
) -> StoredContact:
    contact = await contacts.change(str(contact_id), demanded.match_strongly, apply)
    return _versioned(contact, response)


def _versioned(contact: Contact, response: Response) -> StoredContact:
    response.headers["ETag"] = contact.etag or ""
    return StoredContact.of(contact)


def _unchanged(etag: str | None) -> Response:
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag or ""})
