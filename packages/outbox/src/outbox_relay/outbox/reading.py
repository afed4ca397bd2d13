"""Reads stored JSON as the annotations of a class's fields declare it, with cattrs.

Annotations decide, not values, because a stored object does not say of which class it was. cattrs converts more
than is wanted here, and silently: "2" to 2, a list to a set. A service that reads a document and stores it again
must not change it. So data of another JSON type than the annotation declares is passed through, and an annotation
whose values are not JSON is an error.
"""

from __future__ import annotations

import inspect
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, is_typeddict

import attrs
from cattrs import Converter
from cattrs.cols import homogenous_tuple_structure_factory, list_structure_factory, mapping_structure_factory
from cattrs.errors import AttributeValidationNote, ClassValidationError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, override

from outbox_relay.outbox.fields import Field, fields_of, is_model, is_record

_SCALARS = (str, int, float)
_BARE = (*_SCALARS, bool, NoneType)
_ARRAYS: tuple[type, ...] = (abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_OBJECTS: tuple[type, ...] = (abc.Mapping, abc.MutableMapping)
_ABSENT = object()


class Unmapped(TypeError):
    """A field cannot be stored and read again as its annotation declares it.

    Attributes:
        path: Where, from the field on: `.lines[0].product`.
        why: What is wrong there.
    """

    def __init__(self, why: str, path: str = "") -> None:
        self.why = why
        self.path = path
        super().__init__(f"{path.removeprefix('.')} {why}".strip())

    def within(self, step: str) -> Unmapped:
        """Return the same error for the object around, in which `step` leads to the field."""
        return Unmapped(self.why, step + self.path)


def read(kind: type, data: Mapping[str, Any], without: frozenset[str] = frozenset()) -> Any:
    """Return the object of a dataclass, an attrs class or a Pydantic model that is stored as `data`.

    Fields that the constructor does not take are set afterwards. Those in `without` are not read.

    Raises:
        Unmapped: `data` lacks a field without a default, a Pydantic model rejects it, or an annotation is not that
            of JSON. Other errors of constructors are passed on.
        TypeError: Two fields of a class have one name in JSON.
    """
    if is_model(kind):
        return _validated(kind, data)
    try:
        values = loader(kind, without)(data)
    except ClassValidationError as error:
        raise _located(error) from None
    found = [
        (field, values[field.name]) for field in fields_of(kind, without) if values[field.name] is not _ABSENT
    ]
    value = kind(**{field.argument: each for field, each in found if field.argument})
    for field, each in found:
        if field.argument is None:
            object.__setattr__(value, field.name, each)  # the class may be frozen
    return value


@cache
def loader(kind: type, without: frozenset[str] = frozenset()) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that reads the values of a class's fields.

    Raises:
        Unmapped, TypeError: As `read`, for the annotations of the class and of those within.
    """
    fields = {field.name: _held(field) for field in fields_of(kind, without)}
    holder = attrs.make_class(kind.__name__, fields, slots=False, kw_only=True)
    load: Callable[..., Any] = make_dict_structure_fn(holder, _CONVERTER)
    return lambda data: vars(load(data, holder))


def _held(field: Field) -> Any:
    try:
        hook = override(rename=field.stored_as, struct_hook=_reader(field.annotation))
    except Unmapped as error:
        raise error.within(f".{field.name}") from None
    default: Any = attrs.NOTHING if field.required else _ABSENT
    annotation: Any = Annotated[Any, hook]
    return attrs.field(type=annotation, default=default, alias=field.name)


def _validated(kind: Any, data: Mapping[str, Any]) -> Any:
    from pydantic import ValidationError  # an optional dependency, which whoever has a model has

    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise Unmapped(f"is not valid: {first['msg']}", path) from None


def _located(error: BaseException) -> BaseException:
    """Return the first error in a group of cattrs. An Unmapped has its path."""
    path = ""
    while isinstance(error, ClassValidationError | IterableValidationError):
        (error, note), *_ = error.group_exceptions()[0]
        if isinstance(note, AttributeValidationNote):
            path += f".{note.name}"
        else:
            path += f"[{note.index}]" if isinstance(note.index, int) else "[…]"
    if isinstance(error, KeyError):
        return Unmapped("is not in the stored document and has no default", path)
    return error.within(path) if isinstance(error, Unmapped) else error


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the values of one annotation. A structure hook for cattrs.

    Attributes:
        takes: The JSON types that the annotation declares.
        load: Converts data of these types. None leaves them unchanged.
    """

    takes: tuple[type, ...] = ()
    load: Callable[..., Any] | None = None

    def __call__(self, data: Any, _: Any = None) -> Any:
        return self.load(data) if self.load is not None and isinstance(data, self.takes) else data


_ANYTHING = _Reader((dict, list, str, int, float))


def _reader(annotation: Any) -> _Reader:
    """Return the reader for a resolved annotation.

    Raises:
        Unmapped: Its values are not JSON, or are ambiguous when they are read.
    """
    hint = _without_alias(annotation)
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return _union(arguments, hint)
    if kind is Literal:
        return _Reader(tuple({type(each) for each in arguments}))
    if not isinstance(kind, type) or kind in (Any, object):
        return _ANYTHING
    if is_record(kind):
        return _record(kind)
    if kind in (tuple, list) or kind in _ARRAYS:
        return _array(kind, arguments)
    if is_typeddict(kind) or kind is dict or kind in _OBJECTS:
        return _object(arguments)
    if kind in _BARE:
        return _Reader((kind,))
    if issubclass(kind, Enum) and issubclass(kind, _SCALARS):
        return _enumeration(kind)
    for bare in (*_SCALARS, list, dict):
        if issubclass(kind, bare):
            raise Unmapped(f"is annotated as {_describe(hint)}, which would be read as a plain {bare.__name__}")
    if inspect.isabstract(kind) or getattr(kind, "_is_protocol", False):
        return _ANYTHING
    raise Unmapped(f"is annotated as {_describe(hint)}, which is not JSON")


def _enumeration(kind: type[Enum]) -> _Reader:
    """Return the reader for an enumeration of texts or numbers; what is no value of it stays as it is."""
    bare = next(each for each in _SCALARS if issubclass(kind, each))

    def load(data: Any) -> Any:
        try:
            found: Any = kind(data)
        except ValueError:
            return data
        # `_missing_` may find a member whose value is another one.
        return found if type(data) is bare and found == data else data

    reader = _Reader((bare,), load)
    _CONVERTER.register_structure_hook(kind, reader)  # cattrs would take that of `bare`
    return reader


def _record(kind: type) -> _Reader:
    if kind not in _CHECKED and not is_model(kind):
        _CHECKED.add(kind)  # before its fields, of which one may be of this class
        try:
            loader(kind)
        except TypeError:
            _CHECKED.remove(kind)
            raise
    return _Reader((dict,), partial(read, kind))


def _array(kind: type, arguments: tuple[Any, ...]) -> _Reader:
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        return _fixed(arguments)
    element = arguments[0] if arguments else Any
    converts = _reader(element).load is not None
    if kind is tuple:
        tuples: Any = GenericAlias(tuple, (element, ...))
        return _Reader((list,), homogenous_tuple_structure_factory(tuples, _CONVERTER))
    lists: Any = GenericAlias(list, (element,))
    return _Reader((list,), list_structure_factory(lists, _CONVERTER) if converts else None)


def _fixed(elements: tuple[Any, ...]) -> _Reader:
    for element in elements:
        _reader(element)  # cattrs would accept bytes and paths
    load = _CONVERTER.gen_structure_hetero_tuple(GenericAlias(tuple, elements))
    return _Reader((list,), lambda data: load(data, tuple) if len(data) == len(elements) else data)


def _object(arguments: tuple[Any, ...]) -> _Reader:
    if len(arguments) != 2:
        return _Reader((dict,))
    key, element = _without_alias(arguments[0]), arguments[1]
    is_text = isinstance(key, TypeVar) or key in (Any, str) or get_origin(key) is Literal
    if not is_text:
        raise Unmapped(f"has {_describe(key)} as keys, which would be read as strings: JSON has no others")
    converts = _reader(element).load is not None
    objects: Any = GenericAlias(dict, (str, element))
    return _Reader((dict,), mapping_structure_factory(objects, _CONVERTER) if converts else None)


def _union(arguments: tuple[Any, ...], hint: Any) -> _Reader:
    readers = [_reader(each) for each in arguments]
    by_type: dict[type, _Reader] = {}
    for json_type, name in (
        (dict, "object"),
        (list, "array"),
        (str, "string"),
        (int, "integer"),
        (float, "number"),
    ):
        takers = [reader for reader in readers if json_type in reader.takes]
        if len(takers) > 1 and any(reader.load for reader in takers):
            raise Unmapped(f"is annotated as {_describe(hint)}, and a stored {name} does not say which it was")
        if takers:
            by_type[json_type] = takers[0]
    if not any(reader.load for reader in by_type.values()):
        return _Reader(tuple(by_type))
    return _Reader(
        tuple(by_type), lambda data: next(by_type[each] for each in by_type if isinstance(data, each))(data)
    )


def _without_alias(hint: Any) -> Any:
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # typing.NewType
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # `type Lines = list[Line]`, from Python 3.12 on
            hint = hint.__value__
        else:
            return hint


def _describe(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


_CHECKED: set[type] = set()
_CONVERTER = Converter()
_CONVERTER.register_structure_hook_factory(lambda _: True, _reader)
for _scalar in _SCALARS:  # cattrs looks for these first
    _CONVERTER.register_structure_hook(_scalar, _Reader())
