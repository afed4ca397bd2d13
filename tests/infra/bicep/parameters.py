"""Evaluates parameter files (.bicepparam)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.infra.bicep import tree
from tests.infra.bicep.expressions import BicepError, Scope, load_json
from tests.infra.bicep.parser import parse
from tests.infra.bicep.tree import Expression


def read_parameters(file: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The parameters that a .bicepparam file sets; `readEnvironmentVariable` reads `environment`.

    Raises:
        BicepError: The compiler would reject the file.
    """
    return _ParameterFile(file, environment or {}).parameters


class _ParameterFile(Scope):
    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        super().__init__(
            {},
            {
                "loadJsonContent": load_json(file),
                "readEnvironmentVariable": self._read_environment_variable,
            },
        )
        self._file = file
        self._environment = environment
        self._literals: set[str] = set()
        self.parameters: dict[str, Any] = {}
        for each in parse(file.read_text(encoding="utf-8"), file.name):
            if each.kind in ("param", "var") and each.value is not None:
                self.names[each.name] = value = self.value(each.value)
                if self._is_literal(each.value):
                    self._literals.add(each.name)
                if each.kind == "param":
                    self.parameters[each.name] = value

    def _is_literal(self, expression: Expression) -> bool:
        """Whether the compiler infers the type of a single string literal for an expression.

        Stricter than the compiler, which also folds calls and interpolations of literals. The type of a choice is
        the union of its two strings (`VisitTernaryOperationSyntax` in Azure/bicep,
        src/Bicep.Core/TypeSystem/TypeAssignmentVisitor.cs).
        """
        match expression:
            case tree.Constant(value):
                return isinstance(value, str)
            case tree.Name(name):
                return name in self._literals
            case tree.Call(function, _):
                return function == "readEnvironmentVariable"
        return False

    def _read_environment_variable(self, _: Scope, arguments: tuple[Expression, ...]) -> str:
        """As `ReadEnvironmentVariableResultBuilder` in Azure/bicep, SystemNamespaceType.cs.

        Unlike there, the default is checked even if the variable is set, so that the result is the same anywhere.
        """
        for code, argument in zip(("BCP032", "BCP427"), arguments, strict=False):
            if not self._is_literal(argument):
                raise BicepError(f"{code}: every argument of readEnvironmentVariable must be a string literal")
        name, *default = (str(self.value(argument)) for argument in arguments)
        if name in self._environment:
            return self._environment[name]
        if not default:
            raise BicepError(f"BCP427: the environment variable {name} does not exist and has no default")
        return default[0]
