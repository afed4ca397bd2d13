"""XML with the prefixes the service uses, for clients that compare names with their prefixes.

@azure/service-bus 7.9.5 looks for `entry`, `content` and `QueueDescription` without a prefix, for counts whose one
prefix is declared on `CountDetails`, and for `i:type`. ElementTree would choose prefixes of its own for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

_PREFIXES = {COUNTS: "d2p1", INSTANCE: "i"}


def encode(root: Element) -> bytes:
    """Encode a document: namespaces without a prefix, but those of counts and of types."""
    return "".join(_write(root, "", frozenset())).encode()


def _write(element: Element, default: str, declared: frozenset[str]) -> Iterator[str]:
    namespace, local = _split(element.tag)
    prefix = _PREFIXES.get(namespace)
    attributes = [] if prefix or namespace == default else [("xmlns", namespace)]
    attributes += [(f"xmlns:{_PREFIXES[needed]}", needed) for needed in sorted(_needs(element) - declared)]
    for key, value in element.attrib.items():
        space, name = _split(key)
        attributes.append((f"{_PREFIXES[space]}:{name}" if space in _PREFIXES else key, value))
    tag = f"{prefix}:{local}" if prefix else local
    yield f"<{tag}" + "".join(f" {name}={quoteattr(value)}" for name, value in attributes)
    if not len(element) and not element.text:
        yield "/>"
        return
    yield ">" + escape(element.text or "")
    known = declared | _needs(element)
    for child in element:
        yield from _write(child, default if prefix else namespace, known)
    yield f"</{tag}>"


def _needs(element: Element) -> set[str]:
    """Return the namespaces with a prefix that are declared on an element.

    They are those of its children and attributes.
    """
    names = [child.tag for child in element] + list(element.attrib)
    return {space for space, _ in map(_split, names) if space in _PREFIXES}


def _split(name: str) -> tuple[str, str]:
    namespace, _, local = name.rpartition("}")
    return namespace.removeprefix("{"), local
