"""Request and response bodies. They declare the rules that the domain enforces."""

from __future__ import annotations

from typing import Annotated, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from samples.contacts.domain import Company, Contact, Name
from samples.contacts.domain.values import EMAIL, FILLED_LINE, LINE, MAX_DESCRIPTION, MAX_EMAIL, MAX_LINE

FilledLine = Annotated[str, Field(max_length=MAX_LINE, pattern=FILLED_LINE)]
Line = Annotated[str, Field(max_length=MAX_LINE, pattern=LINE)]
EmailAddress = Annotated[str, Field(max_length=MAX_EMAIL, pattern=EMAIL, examples=["johndoe@contoso.com"])]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION)]


class _Body(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class NameBody(_Body):
    first_name: FilledLine
    last_name: FilledLine

    def to_value(self) -> Name:
        return Name(self.first_name, self.last_name)

    @classmethod
    def of(cls, name: Name) -> Self:
        return cls(first_name=name.first_name, last_name=name.last_name)


class CompanyBody(_Body):
    company_name: FilledLine
    street: Line = ""
    house_number: Line = ""
    postal_code: Line = ""
    city: Line = ""
    country: Line = ""

    def to_value(self) -> Company:
        return Company(
            self.company_name, self.street, self.house_number, self.postal_code, self.city, self.country
        )

    @classmethod
    def of(cls, company: Company) -> Self:
        return cls(
            company_name=company.company_name,
            street=company.street,
            house_number=company.house_number,
            postal_code=company.postal_code,
            city=company.city,
            country=company.country,
        )


class EmailBody(_Body):
    email: EmailAddress


class DescriptionBody(_Body):
    description: Description


class NewContact(_Body):
    """A contact to create. The service generates the id unless the client chooses one."""

    id: UUID | None = None
    name: NameBody
    email: EmailAddress
    company: CompanyBody
    description: Description = ""

    def to_contact(self) -> Contact:
        return Contact(
            self.name.to_value(),
            self.email,
            self.company.to_value(),
            self.description,
            id=None if self.id is None else str(self.id),
        )


class Changes(_Body):
    """Changes that are applied together or not at all. A missing or null field stays unchanged."""

    name: NameBody | None = None
    email: EmailAddress | None = None
    company: CompanyBody | None = None
    description: Description | None = None

    def apply_to(self, contact: Contact) -> None:
        if self.name is not None:
            contact.set_name(self.name.to_value())
        if self.email is not None:
            contact.set_email(self.email)
        if self.company is not None:
            contact.set_company(self.company.to_value())
        if self.description is not None:
            contact.set_description(self.description)


class StoredContact(_Body):
    """A stored contact."""

    id: UUID
    name: NameBody
    email: EmailAddress
    company: CompanyBody
    description: Description
    created_at: str
    modified_at: str | None

    @classmethod
    def of(cls, contact: Contact) -> Self:
        return cls(
            id=UUID(contact.id),
            name=NameBody.of(contact.name),
            email=contact.email,
            company=CompanyBody.of(contact.company),
            description=contact.description,
            created_at=contact.created_at,
            modified_at=contact.modified_at,
        )


class ListedContact(StoredContact):
    """A contact in a list, with the ETag that its own resource has in the header."""

    etag: str

    @classmethod
    def of(cls, contact: Contact) -> Self:
        return cls(**StoredContact.of(contact).model_dump(), etag=contact.etag or "")


class ContactPage(_Body):
    """Some contacts. Request the next page with `continuation` until it is null."""

    items: list[ListedContact]
    continuation: str | None


class Fault(BaseModel):
    """One error in a request: at a JSON pointer into the body, or in a parameter."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class Problem(BaseModel):
    """Problem details, RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[Fault] | None = None
