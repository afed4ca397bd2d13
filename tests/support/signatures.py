"""The public API of a module as text: the signatures of its names, as in a stub file.

They are read from the sources, so that annotations and defaults are the same on each Python. Named constants and
type aliases of the packages are replaced by their values. A class also has the members that it inherits from bases
that are not public.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from docs.site.public_names import MODULES, public_names

_CONSTANTS = (bool, bytes, float, int, range, str)
_NOT_CALLED_BY_USERS = ("__attrs_pre_init__", "__init_subclass__", "__post_init__")
_PACKAGES = {name.partition(".")[0] for name in MODULES}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def describe(module: ModuleType) -> str:
    """Return the signatures of a module's public names, in alphabetical order."""
    return "\n\n".join(_describe(name, getattr(module, name)) for name in sorted(public_names(module))) + "\n"


def _describe(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return "\n".join(_class_lines(value))
    if inspect.isfunction(value):
        return "\n".join(_signature(each, value.__module__) for each in _definitions(value))
    return f"{name} = {value!r}"


@cache
def _source(module_name: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module_name)))


def _definitions(value: Any) -> list[Any]:
    """Return the statements that define a class or function; an overloaded function has several."""
    return [each for each in _source(value.__module__).body if getattr(each, "name", "") == value.__name__]


def _class_lines(cls: type) -> Iterator[str]:
    [node] = _definitions(cls)
    arguments = ", ".join(map(ast.unparse, [*node.bases, *node.keywords]))
    yield from _decorators(node)
    yield f"class {cls.__name__}({arguments}):" if arguments else f"class {cls.__name__}:"
    fields: dict[str, str] = {}
    methods: dict[str, list[str]] = {}
    for each in (*filter(_is_internal, reversed(cls.__mro__[1:])), cls):
        [node] = _definitions(each)
        fields |= _fields(node, each.__module__)
        methods |= _methods(node, each.__module__)
    for text in (*fields.values(), *(text for name in sorted(methods) for text in methods[name])):
        yield from (f"    {line}" for line in text.splitlines())


@cache
def _is_internal(cls: type) -> bool:
    """Return True if a class belongs to one of the packages and is not public."""
    exported = (getattr(importlib.import_module(name), cls.__name__, None) for name in MODULES)
    return _is_own(cls.__module__) and not any(each is cls for each in exported)


def _is_own(module_name: str) -> bool:
    return module_name.partition(".")[0] in _PACKAGES


def _fields(node: ast.ClassDef, module_name: str) -> dict[str, str]:
    """Return the public fields and constants of a class, and the attributes that `__init__` sets."""
    found: dict[str, str] = {}
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            found |= _attributes(each, module_name)
        for target in _targets(each):
            if isinstance(target, ast.Name) and _is_public(target.id):
                found[target.id] = _text(each, module_name)
    return found


def _attributes(init: ast.FunctionDef, module_name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in ast.walk(init):
        annotation = f": {_text(each.annotation, module_name)}" if isinstance(each, ast.AnnAssign) else ""
        for target in _targets(each):
            owner, _, name = ast.unparse(target).rpartition(".")
            if owner == "self" and _is_public(name):
                found[name] = f"self.{name}{annotation}"
    return found


def _targets(node: ast.AST) -> list[ast.expr]:
    """Return the targets of an assignment; of other nodes none."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _methods(node: ast.ClassDef, module_name: str) -> dict[str, list[str]]:
    """Return the public methods and properties of a class: the signatures of each."""
    found: dict[str, list[str]] = {}
    for each in node.body:
        if isinstance(each, _Function) and (_is_public(each.name) or _is_special(each.name)):
            found.setdefault(each.name, []).append(_signature(each, module_name))
    return found


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _NOT_CALLED_BY_USERS


def _signature(node: _Function, module_name: str) -> str:
    """Return the decorators and the first line of a function."""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {_text(node.returns, module_name)}" if node.returns else ""
    return "\n".join([*_decorators(node), f"{keyword} {node.name}({_text(node.args, module_name)}){returns}"])


def _decorators(node: _Function | ast.ClassDef) -> list[str]:
    return [f"@{ast.unparse(each)}" for each in node.decorator_list]


def _text(node: ast.AST, module_name: str) -> str:
    return ast.unparse(_Values(module_name).visit(copy.deepcopy(node)))


class _Values(ast.NodeTransformer):
    """Replaces the constants and type aliases of the packages by their values."""

    def __init__(self, module_name: str) -> None:
        self._module_name = module_name

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            return node
        alias, defined_in = _alias(node.id, self._module_name)
        return _Values(defined_in).visit(copy.deepcopy(alias)) if alias else self.visit_Attribute(node)

    def visit_Attribute(self, node: ast.Name | ast.Attribute) -> ast.expr:
        first, *rest = ast.unparse(node).split(".")
        value = vars(sys.modules[self._module_name]).get(first)
        for name in rest:
            value = getattr(value, name, None)
        return ast.Constant(value) if type(value) in _CONSTANTS else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node.slice = self.visit(node.slice)
        return node


def _alias(name: str, module_name: str) -> tuple[ast.expr | None, str]:
    """Return the value of a type alias and the module that defines it; None for another name."""
    statements = _source(module_name).body
    for each in (
        *statements,
        *(inner for block in statements if isinstance(block, ast.If) for inner in block.body),
    ):
        if isinstance(each, ast.ImportFrom) and each.module and _is_own(each.module):
            if name in (other.asname or other.name for other in each.names):
                return _alias(name, each.module)
        elif isinstance(each, ast.Assign | ast.AnnAssign) and name in map(ast.unparse, _targets(each)):
            return (each.value if isinstance(each.value, ast.Subscript | ast.BinOp) else None), module_name
    return None, module_name
