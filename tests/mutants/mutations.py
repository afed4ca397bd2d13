"""The mutants of a file: for Python those of cosmic-ray's operators, for JSON one for each value.

Of cosmic-ray's comparison and arithmetic operators the few are taken that a wrong line of code looks like: the
opposite, the neighbour at the boundary. Annotations are left out, as nothing evaluates them.
"""

from __future__ import annotations

import ast
import copy
import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator

_COMPARISONS = (
    *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
)
_ARITHMETIC = (
    *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul"),
    *("BitOr_BitAnd", "BitAnd_BitOr", "LShift_RShift", "RShift_LShift"),
)
_NAMES = (
    *(f"ReplaceComparisonOperator_{pair}" for pair in _COMPARISONS),
    *(f"ReplaceBinaryOperator_{pair}" for pair in _ARITHMETIC),
    *("ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not"),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer"),
    *("RemoveDecorator", "ZeroIterationForLoop"),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one file.

    Attributes:
        path: The file, from the root of the project.
        line: The first line that differs, from 1.
        was: What stands there, in one line.
        becomes: What the mutant has instead, in one line.
        text: The whole file with the change.
    """

    path: str
    line: int
    was: str
    becomes: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}\n    - {self.was}\n    + {self.becomes}"


class RemoveStatement(Operator):  # type: ignore[misc]  # the library is untyped
    """Leaves out a call whose value is not used, and an addition to a variable."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if _is_statement(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        prefix = node.get_first_leaf().prefix
        return parso.python.tree.Name("pass", node.start_pos, prefix=prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("call()", "pass"), Example("n += 1", "pass"))


class CatchNothing(Operator):  # type: ignore[misc]  # the library is untyped
    """Names an exception that nothing raises, instead of each that is caught; cosmic-ray's own fails on `a.B`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        for caught in _caught(node):
            yield caught.start_pos, caught.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        caught = _caught(node)[index]
        siblings = caught.parent.children
        start = caught.get_first_leaf()
        other = parso.python.tree.Name("ZeroDivisionError", start.start_pos, prefix=start.prefix)
        siblings[siblings.index(caught)] = other
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        one = Example("try: f()\nexcept a.B: g()", "try: f()\nexcept ZeroDivisionError: g()")
        return (one, Example("try: f()\nexcept (A, a.B): g()", "try: f()\nexcept (A, ZeroDivisionError): g()", 1))


def _caught(node: Any) -> list[Any]:
    """The exceptions of an except clause: itself, or each member of its tuple."""
    if node.type != "except_clause":
        return []
    named = node.children[1]
    if named.type != "atom":
        return [named]
    inner = named.children[1]
    return list(inner.children[::2]) if inner.type == "testlist_comp" else [inner]


def _is_statement(node: Any) -> bool:
    if node.parent is None or node.parent.type != "simple_stmt":
        return False
    if node.type == "expr_stmt":
        operator = getattr(node.children[1], "value", "")
        return operator.endswith("=") and operator != "="
    return node.type in ("atom_expr", "power") and node.children[-1].type == "trailer"


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Every mutant of the file `path` under `root`, in the order of its lines."""
    text = (root / path).read_text()
    found = _of_json(path, text) if path.endswith(".json") else _of_python(path, text)
    return sorted(found, key=lambda mutant: mutant.line)


def _of_python(path: str, text: str) -> Iterator[Mutant]:
    seen = {_meaning(text)}
    for operator in (*(get_operator(f"core/{name}")() for name in _NAMES), CatchNothing(), RemoveStatement()):
        for occurrence in range(_occurrences(text, operator)):
            mutated = mutate_code(text, operator, occurrence)
            meaning = _meaning(mutated) if mutated else None
            if mutated is not None and meaning is not None and meaning not in seen:
                seen.add(meaning)
                yield _mutant(path, text, mutated)


def _occurrences(text: str, operator: Operator) -> int:
    return sum(len(list(operator.mutation_positions(node))) for node in ast_nodes(get_ast(text)))


def _mutant(path: str, text: str, mutated: str) -> Mutant:
    before, after = text.splitlines(), mutated.splitlines()
    matched = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changes = [each for each in matched if each[0] != "equal"]
    first, last = changes[0], changes[-1]
    was, becomes = before[first[1] : last[2]], after[first[3] : last[4]]
    return Mutant(path, first[1] + 1, _one_line(was), _one_line(becomes), mutated)


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _meaning(text: str) -> str | None:
    """The bytecode of a module, to recognize equal mutants; None if it is no module."""
    try:
        return ast.dump(_Meaning().visit(ast.parse(text)))
    except SyntaxError:
        return None


class _Meaning(ast.NodeTransformer):
    _OPPOSITES = (
        (ast.Eq, ast.NotEq),
        (ast.Is, ast.IsNot),
        (ast.In, ast.NotIn),
        (ast.Lt, ast.GtE),
        (ast.Gt, ast.LtE),
    )

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        # cosmic-ray takes the bare asterisk of a signature for a multiplication.
        node.posonlyargs, node.args, node.kwonlyargs = [], [*node.posonlyargs, *node.args, *node.kwonlyargs], []
        node.defaults, node.kw_defaults = [*node.defaults, *(each for each in node.kw_defaults if each)], []
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Name("annotation")
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        inner = node.operand
        if isinstance(node.op, ast.Not) and isinstance(inner, ast.Compare) and len(inner.ops) == 1:
            for one, other in self._OPPOSITES:
                for kind, opposite in ((one, other), (other, one)):
                    if isinstance(inner.ops[0], kind):
                        return ast.Compare(inner.left, [opposite()], inner.comparators)
        return node


def _of_json(path: str, text: str) -> Iterator[Mutant]:
    whole = json.loads(text)
    for keys in _paths(whole):
        for value in (_REMOVED, *_changed(_at(whole, keys))):
            mutated = copy.deepcopy(whole)
            parent = _at(mutated, keys[:-1])
            if value is _REMOVED:
                del parent[keys[-1]]
            else:
                parent[keys[-1]] = value
            shown = "nothing" if value is _REMOVED else json.dumps(value)
            was = f"{'.'.join(keys)}: {json.dumps(_at(whole, keys))}"
            yield Mutant(path, 1, was, f"{'.'.join(keys)}: {shown}", json.dumps(mutated, indent=2))


_REMOVED = object()


def _paths(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*keys, key))
    else:
        yield keys


def _at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _changed(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1]
    numbers = [
        value[: found.start()] + str(max(0, int(found[0]) + step)).zfill(len(found[0])) + value[found.end() :]
        for found in re.finditer(r"\d+", str(value))
        for step in (1, -1)
    ]
    return [each for each in numbers if each != value] or [f"{value}x"]
