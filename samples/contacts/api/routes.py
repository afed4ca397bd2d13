"""The routes of the API: contacts and their parts."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from outbox_relay.outbox import NotModified
from samples.contacts.api.conditions import EntityTags, parse_if_none_match, require_if_match
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

_DEFAULT_PAGE_SIZE = 50
_MAX_PAGE_SIZE = 200
_CHANGE_RESPONSES = {
    200: {"headers": ETAG},
    **problems(HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED),
}


async def get_contacts(request: Request) -> Contacts:
    """Return the use cases, created when the server started."""
    contacts: Contacts = request.app.state.contacts
    return contacts


Service = Annotated[Contacts, Depends(get_contacts)]
IfMatch = Annotated[EntityTags, Depends(require_if_match)]
IfNoneMatch = Annotated[EntityTags, Depends(parse_if_none_match)]


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={201: {"headers": {**ETAG, **LOCATION}}, **problems(HTTPStatus.CONFLICT)},
)
async def create_contact(new: NewContact, contacts: Service, response: Response) -> StoredContact:
    """Create a contact. 409 if the chosen id is in use."""
    contact = await contacts.create(new.to_contact())
    response.headers["Location"] = f"/contacts/{contact.id}"
    return _with_etag(contact, response)


@router.get("", responses=problems())
async def list_contacts(
    contacts: Service,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=_MAX_PAGE_SIZE)] = _DEFAULT_PAGE_SIZE,
    continuation: Annotated[str | None, Query(description="The `continuation` of the previous page.")] = None,
) -> ContactPage:
    """List contacts by page, in no particular order. 400 if `continuation` is invalid."""
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
    contact_id: UUID, if_none_match: IfNoneMatch, contacts: Service, response: Response
) -> StoredContact | Response:
    """Read a contact. 304 if the client already has this version."""
    try:
        contact = await contacts.read(str(contact_id), if_none_match=if_none_match.single)
    except NotModified:
        return _not_modified(if_none_match.single)
    if if_none_match.match_weakly(contact.etag or ""):
        return _not_modified(contact.etag)
    return _with_etag(contact, response)


@router.patch("/{contact_id}", responses=_CHANGE_RESPONSES)
async def change_contact(
    contact_id: UUID, changes: Changes, if_match: IfMatch, contacts: Service, response: Response
) -> StoredContact:
    """Change several parts of a contact in one commit, with an event for each."""
    return await _change(contacts, contact_id, if_match, changes.apply_to, response)


@router.put("/{contact_id}/name", responses=_CHANGE_RESPONSES)
async def set_name(
    contact_id: UUID, name: NameBody, if_match: IfMatch, contacts: Service, response: Response
) -> StoredContact:
    """Replace the name of a contact."""
    return await _change(
        contacts, contact_id, if_match, lambda contact: contact.set_name(name.to_value()), response
    )


@router.put("/{contact_id}/email", responses=_CHANGE_RESPONSES)
async def set_email(
    contact_id: UUID, body: EmailBody, if_match: IfMatch, contacts: Service, response: Response
) -> StoredContact:
    """Replace the email address of a contact."""
    return await _change(contacts, contact_id, if_match, lambda contact: contact.set_email(body.email), response)


@router.put("/{contact_id}/company", responses=_CHANGE_RESPONSES)
async def set_company(
    contact_id: UUID, company: CompanyBody, if_match: IfMatch, contacts: Service, response: Response
) -> StoredContact:
    """Replace the company of a contact, including its address."""
    return await _change(
        contacts, contact_id, if_match, lambda contact: contact.set_company(company.to_value()), response
    )


@router.put("/{contact_id}/description", responses=_CHANGE_RESPONSES)
async def set_description(
    contact_id: UUID, body: DescriptionBody, if_match: IfMatch, contacts: Service, response: Response
) -> StoredContact:
    """Replace the description of a contact."""
    return await _change(
        contacts, contact_id, if_match, lambda contact: contact.set_description(body.description), response
    )


@router.delete(
    "/{contact_id}",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED),
)
async def delete_contact(contact_id: UUID, if_match: IfMatch, contacts: Service) -> None:
    """Delete a contact. Its id cannot be used again."""
    await contacts.delete(str(contact_id), if_match.match_strongly)


async def _change(
    contacts: Contacts,
    contact_id: UUID,
    if_match: EntityTags,
    apply: Callable[[Contact], None],
    response: Response,
) -> StoredContact:
    contact = await contacts.change(str(contact_id), if_match.match_strongly, apply)
    return _with_etag(contact, response)


def _with_etag(contact: Contact, response: Response) -> StoredContact:
    response.headers["ETag"] = contact.etag or ""
    return StoredContact.of(contact)


def _not_modified(etag: str | None) -> Response:
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag or ""})
