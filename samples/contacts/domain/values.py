"""The value objects of a contact. They validate themselves when constructed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

MAX_LINE = 200
MAX_EMAIL = 254
MAX_DESCRIPTION = 4000

# In the syntax of JSON Schema, so that the API can declare the rules that the domain enforces.
LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
FILLED_LINE = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
EMAIL = r"^[^@\s\x00-\x1f\x7f-\x9f]+@[^@\s\x00-\x1f\x7f-\x9f]+$"


class InvalidContact(ValueError):
    """A value is not valid for a contact. The message names the value and the rule."""


@dataclass(frozen=True, slots=True)
class Name:
    """A person's name. Both parts are one line each and not blank.

    Raises:
        InvalidContact: A part breaks that rule.
    """

    first_name: str
    last_name: str

    def __post_init__(self) -> None:
        _check(self.first_name, "the first name", FILLED_LINE, MAX_LINE)
        _check(self.last_name, "the last name", FILLED_LINE, MAX_LINE)

    def to_data(self) -> dict[str, str]:
        return {"firstName": self.first_name, "lastName": self.last_name}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["firstName"], data["lastName"])


@dataclass(frozen=True, slots=True)
class Company:
    """A company and its address. Each field is one line; the name is not blank.

    Raises:
        InvalidContact: A field breaks that rule.
    """

    company_name: str
    street: str = ""
    house_number: str = ""
    postal_code: str = ""
    city: str = ""
    country: str = ""

    def __post_init__(self) -> None:
        _check(self.company_name, "the company's name", FILLED_LINE, MAX_LINE)
        _check(self.street, "the street", LINE, MAX_LINE)
        _check(self.house_number, "the house number", LINE, MAX_LINE)
        _check(self.postal_code, "the postal code", LINE, MAX_LINE)
        _check(self.city, "the city", LINE, MAX_LINE)
        _check(self.country, "the country", LINE, MAX_LINE)

    def to_data(self) -> dict[str, str]:
        return {
            "companyName": self.company_name,
            "street": self.street,
            "houseNumber": self.house_number,
            "postalCode": self.postal_code,
            "city": self.city,
            "country": self.country,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            company_name=data["companyName"],
            street=data["street"],
            house_number=data["houseNumber"],
            postal_code=data["postalCode"],
            city=data["city"],
            country=data["country"],
        )


def checked_email(text: str) -> str:
    """Return the address if it has the form name@host. Whether it exists is not checked.

    Raises:
        InvalidContact: It does not have that form.
    """
    _check(text, "the email address", EMAIL, MAX_EMAIL)
    return text


def checked_description(text: str) -> str:
    """Return the text if it is not too long.

    Raises:
        InvalidContact: It is too long.
    """
    if len(text) > MAX_DESCRIPTION:
        raise InvalidContact(f"the description has {len(text)} characters, more than {MAX_DESCRIPTION}")
    return text


def _check(text: str, what: str, pattern: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidContact(f"{what} has {len(text)} characters, more than {longest}")
    if not re.fullmatch(pattern, text):
        raise InvalidContact(f"{what} is {text!r}: {_RULES[pattern]}")


_RULES = {
    LINE: "it must be one line without control characters",
    FILLED_LINE: "it must be one line without control characters and not blank",
    EMAIL: "it must have the form name@host, without spaces",
}
