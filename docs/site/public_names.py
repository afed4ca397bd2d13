"""The public names of the packages that the reference describes, and what their docstrings have to say."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

MODULES = tuple(
    f"outbox_relay.{name}"
    for name in ("outbox", "outbox.attrs", "outbox.pydantic", "inbox", "changefeed", "emulators.testing")
)


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers: `__all__`, or else what it defines without an underscore."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def has_docstring(value: Any) -> bool:
    """Return True if a class, function or property has a docstring.

    The text that dataclasses write themselves does not count.
    """
    text = inspect.getdoc(value)
    return bool(text) and not (inspect.isclass(value) and str(text).startswith(f"{value.__name__}("))


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines."""
    for name, value in vars(cls).items():
        if not name.startswith("_") and (
            inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        ):
            yield name, getattr(cls, name)


def fields_without_meaning(cls: type) -> Iterator[str]:
    """Yield the public fields of a dataclass that neither its docstring nor that of a base names."""
    docstrings = " ".join(each.__doc__ or "" for each in cls.__mro__[:-1])
    for each in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if not each.name.startswith("_") and not re.search(rf"\b{each.name}\b", docstrings):
            yield each.name


def undocumented(name: str, value: Any) -> Iterator[str]:
    """Yield the public names without a docstring: this one's, and those of its members."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return
    if not has_docstring(value):
        yield name
    if inspect.isclass(value):
        yield from (f"{name}.{each}" for each, member in members(value) if not has_docstring(member))


def problems(modules: Sequence[str]) -> Iterator[str]:
    """Yield the gaps in the docstrings of the public names of these modules."""
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in public_names(module):
            full, value = f"{module_name}.{name}", getattr(module, name)
            for each in undocumented(full, value):
                yield f"{each} is public and has no docstring: write one"
            for field in fields_without_meaning(value) if inspect.isclass(value) else ():
                yield f"{full} does not say what {field} is: add it to the docstring's Attributes"


def full_names(modules: Sequence[str]) -> Iterator[str]:
    """Yield the public names of these modules, with their modules."""
    for module_name in modules:
        for name in public_names(importlib.import_module(module_name)):
            yield f"{module_name}.{name}"


def absent(name: str, pages: Sequence[str]) -> str:
    """Return the error for a public name that the reference does not have."""
    return (
        f"{name} is public and not in the reference: add it to one of {', '.join(f'{page}.rst' for page in pages)}"
    )
