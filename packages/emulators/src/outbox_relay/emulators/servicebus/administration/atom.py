"""Atom documents of the management API: descriptions in requests, entries and feeds in answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from outbox_relay.emulators.servicebus.administration.errors import BadRequest
from outbox_relay.emulators.servicebus.administration.xml import INSTANCE, encode

ATOM = "http://www.w3.org/2005/Atom"
CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
SCHEMA = "http://www.w3.org/2001/XMLSchema"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource: its description, and when it was made and changed, in milliseconds since the epoch."""

    title: str
    address: str
    published_ms: int
    updated_ms: int
    description: Element


def name(local: str, namespace: str = CONNECT) -> str:
    """Return a name as ElementTree writes it."""
    return f"{{{namespace}}}{local}"


def moment(milliseconds: int | None) -> str:
    """Write a moment; None is never, for which the service writes the first moment of .NET."""
    if milliseconds is None:
        return "0001-01-01T00:00:00Z"
    found = _EPOCH + timedelta(milliseconds=milliseconds)
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond:06d}Z"


def element(local: str, children: Iterable[Element | tuple[str, str]] = (), namespace: str = CONNECT) -> Element:
    """Make an element; pairs are the names and texts of children."""
    made = Element(name(local, namespace))
    for child in children:
        if isinstance(child, tuple):
            SubElement(made, name(child[0], namespace)).text = child[1]
        else:
            made.append(child)
    return made


def read_description(body: bytes) -> Element:
    """Return the description in the <content/> of an entry. Raises BadRequest."""
    try:
        entry = ElementTree.fromstring(body)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise BadRequest(f"The request body is not XML: {error}.") from error
    content = entry.find(name("content", ATOM))
    if content is None or not len(content):
        raise BadRequest("The request body is no ATOM entry with a description for its content.")
    return content[0]


def local_name(found: Element) -> str:
    """Return an element's name without its namespace."""
    return found.tag.rpartition("}")[2]


def text_of(parent: Element, local: str) -> str | None:
    """Return the text of a child; None if it is missing, nil, or empty."""
    child = parent.find(name(local))
    if child is None or child.get(name("nil", INSTANCE)) == "true":
        return None
    return (child.text or "").strip() or None


def write_entry(entry: Entry, author: str) -> bytes:
    """Encode the answer about one resource."""
    return encode(_entry(entry, author))


def write_feed(title: str, address: str, entries: Iterable[Entry], author: str, next_page: str | None) -> bytes:
    """Encode a page of resources. Clients take the second of two links for the next page."""
    feed = element("feed", [("title", title), ("id", address), ("updated", _now())], ATOM)
    links: Mapping[str, str | None] = {"self": address, "next": next_page}
    for relation, target in links.items():
        if target is not None:
            SubElement(feed, name("link", ATOM), {"rel": relation, "href": target})
    for entry in entries:
        feed.append(_entry(entry, author))
    return encode(feed)


def _entry(entry: Entry, author: str) -> Element:
    made = element(
        "entry",
        [
            ("id", entry.address),
            ("title", entry.title),
            ("published", moment(entry.published_ms)),
            ("updated", moment(entry.updated_ms)),
            element("author", [("name", author)], ATOM),
        ],
        ATOM,
    )
    SubElement(made, name("link", ATOM), {"rel": "self", "href": entry.address})
    content = SubElement(made, name("content", ATOM), {"type": "application/xml"})
    content.append(entry.description)
    return made


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
