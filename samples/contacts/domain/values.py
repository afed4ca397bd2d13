"""The value objects of a contact. One that exists is valid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

MAX_LINE = 200
MAX_EMAIL = 254
MAX_DESCRIPTION = 4000

# As JSON Schema has it, so that the API can declare the same rules that the domain enforces.
LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
FILLED_LINE = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
EMAIL = r"^[^@\s\x00-\x1f\x7f-\x9f]+@[^@\s\x00-\x1f\x7f-\x9f]+$"


class InvalidContact(ValueError):
    """A contact cannot have this value; the message says which, and what it has to be."""


@dataclass(frozen=True, slots=True)
class Name:
    """A person's name: both parts filled, each on one line.

    Raises:
        InvalidContact: They are not.
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
    """A company and its address: its name filled, everything on one line each.

    Raises:
        InvalidContact: It is not.
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
    """The address as it was given: one @ with something on both sides, and no blanks. Whether anybody reads it
    can only be found out by writing to it.

    Raises:
        InvalidContact: It is none.
    """
    _check(text, "the email address", EMAIL, MAX_EMAIL)
    return text


def checked_description(text: str) -> str:
    """The text as it was given.

    Raises:
        InvalidContact: It is too long.
    """
    if len(text) > MAX_DESCRIPTION:
        raise InvalidContact(f"the description has {len(text)} characters: {MAX_DESCRIPTION} at most")
    return text


def _check(text: str, what: str, pattern: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidContact(f"{what} has {len(text)} characters: {longest} at most")
    if not re.fullmatch(pattern, text):
        raise InvalidContact(f"{what} is {text!r}: {_DEMANDS[pattern]}")


_DEMANDS = {
    LINE: "it has to be one line without control characters",
    FILLED_LINE: "it has to be one line, not blank, without control characters",
    EMAIL: "it has to be of the form name@host, without blanks",
}
