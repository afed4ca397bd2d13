"""What a contact is and what can happen to it; no I/O."""

from __future__ import annotations

from samples.contacts.domain.contact import Contact
from samples.contacts.domain.values import Company, InvalidContact, Name

__all__ = ["Company", "Contact", "InvalidContact", "Name"]
