"""The parser agrees with pycep-parser on every file, and expressions and templates evaluate as Bicep defines."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pycep import BicepParser

from tests.infra.bicep import tree
from tests.infra.bicep.expressions import BicepError
from tests.infra.bicep.functions import UnknownFunction
from tests.infra.bicep.parameters import read_parameters
from tests.infra.bicep.parser import parse
from tests.infra.bicep.template import deploy
from tests.infra.bicep.tokens import BicepSyntaxError
from tests.infra.project import ROOT

pytestmark = pytest.mark.slow

FILES = sorted((ROOT / "infra").rglob("*.bicep"))

SECTIONS = {
    "param": "parameters",
    "var": "variables",
    "resource": "resources",
    "module": "modules",
    "output": "outputs",
}


@pytest.fixture(scope="module")
def pycep() -> BicepParser:
    return BicepParser()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_both_parsers_find_the_same_declarations(file: Path, pycep: BicepParser) -> None:
    read: dict[str, Any] = dict(pycep.parse(file_path=file))
    declarations = parse(file.read_text(encoding="utf-8"), file.name)

    for kind, section in SECTIONS.items():
        own = {each.name: each for each in declarations if each.kind == kind}
        theirs = read.get(section, {})
        assert set(own) == set(theirs), section
        for name, each in own.items():
            if kind == "resource":
                assert each.type == f"{theirs[name]['type']}@{theirs[name]['api_version']}"
                assert each.existing is theirs[name]["existing"]
            elif kind == "module":
                assert each.type == theirs[name]["detail"]["path"]
            elif kind in ("param", "output"):
                assert each.type == theirs[name]["type"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_both_parsers_find_the_same_literals(file: Path, pycep: BicepParser) -> None:
    read: dict[str, Any] = dict(pycep.parse(file_path=file))

    for each in parse(file.read_text(encoding="utf-8"), file.name):
        if each.kind == "resource" and isinstance(each.value, tree.ObjectOf):
            assert literals(each.value) == literals_of_pycep(read["resources"][each.name]["config"]), each.name


def literals(expression: tree.Expression, path: str = "") -> dict[str, object]:
    """The booleans and numbers in an object, by path."""
    found: dict[str, object] = {}
    if isinstance(expression, tree.ObjectOf):
        for key, value in expression.entries:
            if isinstance(key, tree.Constant):
                found |= literals(value, f"{path}.{key.value}")
    elif isinstance(expression, tree.Constant) and isinstance(expression.value, int):
        found[path] = expression.value
    return found


def literals_of_pycep(read: Any, path: str = "") -> dict[str, object]:
    """The same from pycep's tree."""
    found: dict[str, object] = {}
    if isinstance(read, dict) and not {"function", "operator", "loop_type"} & set(read):
        for key, value in read.items():
            found |= literals_of_pycep(value, f"{path}.{key}")
    elif isinstance(read, int):
        found[path] = read
    return found


@pytest.mark.parametrize(
    "text",
    [
        "param a",
        "param a string = 'x",
        "resource a 'x@y' {\n}",
        "var a = [1, 2",
        "var a = [1 2]",
        "var a = { b: 1 c: 2 }",
        "var a = (1",
        "wibble a = 1",
        "var a = 1 var b = 2",
        "var a = §",
        "module 'x' = {}",
    ],
)
def test_invalid_syntax_is_rejected(text: str) -> None:
    with pytest.raises(BicepSyntaxError, match=r"broken\.bicep:1"):
        parse(text, "broken.bicep")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("true ? 'a' : 'b'", "a"),
        ("!false && 2 > 1 || false", True),
        ("2 <= 2 && !(3 <= 2)", True),
        ("{ a: { b: [1, 2] } }.a.b", [1, 2]),
        ("{ a: 1 }.?b ?? 5", 5),
        ("'it\\'s ${1 + 1} \\${x}'", "it's 2 ${x}"),
        ("[for x in ['a', 'b']: '${x}${1}']", ["a1", "b1"]),
        ("map([1, 2], x => x * 2)", [2, 4]),
        ("union({ a: 1 }, { b: 2, a: 3 })", {"a": 3, "b": 2}),
        ("cidrSubnet('10.0.0.0/24', 26, 3)", "10.0.0.192/26"),
        ("filter([1, 2, 3], x => x > 1)", [2, 3]),
        ("[for (x, at) in ['a', 'b']: '${x}${at}']", ["a0", "b1"]),
        ("[[1, 2], [3]][0][1]", 2),
        ("range(2, 3)", [2, 3, 4]),
        ("union(['b', 'a', 'b'], ['c', 'a'])", ["b", "a", "c"]),
        ("toObject(['a', 'b'], x => '${x}1', x => { is: x })", {"a1": {"is": "a"}, "b1": {"is": "b"}}),
    ],
)
def test_expressions_have_their_values(text: str, expected: object, tmp_path: Path) -> None:
    file = tmp_path / "x.bicep"
    file.write_text(f"var x = {text}\noutput x string = x\n", encoding="utf-8")

    assert deploy(file, {}).outputs == {"x": expected}


def test_a_resource_of_a_loop_is_found_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "x.bicep"
    file.write_text(
        "resource x 'A.B/c@1' = [for name in ['a', 'b']: { name: name }]\n"
        "resource y 'A.B/d@1' = [for (name, at) in ['a', 'b']: { name: 'of-${name}', scope: x[at] }]\n"
        "output last string = x[1].id\n"
        "output named array = map(['a'], name => resourceId('A.B/c', name))\n",
        encoding="utf-8",
    )
    deployment = deploy(file, {})

    a, b = deployment.of("A.B/c")
    assert [each.scope for each in deployment.of("A.B/d")] == [a.id, b.id]
    assert deployment.outputs == {"last": b.id, "named": [a.id]}


def test_a_module_loads_a_text_from_its_own_folder(tmp_path: Path) -> None:
    file = tmp_path / "x.bicep"
    file.write_text("module y 'm/y.bicep' = { name: 'y' }\noutput x string = y.outputs.x\n", encoding="utf-8")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/y.bicep").write_text("output x string = loadTextContent('x.kql')\n", encoding="utf-8")
    (tmp_path / "m/x.kql").write_text("text", encoding="utf-8")

    assert deploy(file, {}).outputs == {"x": "text"}


@pytest.mark.parametrize(
    ("text", "parameters", "says"),
    [
        ("param a string", {}, "a is not given"),
        ("param a string", {"a": 1}, "not of type string"),
        ("param a int", {"a": True}, "not of type int"),
        ("param a int = 1", {"b": 1}, "no parameter b"),
        ("@allowed([\n  'x'\n])\nparam a string", {"a": "y"}, "allowed are"),
        ("@minValue(3)\nparam a int", {"a": 2}, "from 3"),
        ("@maxLength(3)\nparam a string", {"a": "four"}, "to 3"),
        ("output a string = b", {}, "b is not declared"),
        ("output a string = { b: 1 }.c", {}, "no c in"),
        ("output a string = loadTextContent('${1}.kql')", {}, "BCP032"),
        ("resource a 'A.B/c@1' = [for x in []: { name: x }]\noutput b string = a[0].id", {}, "no item 0"),
        ("resource a 'A.B/c@1' = { name: 'x' }\noutput b string = a[0].id", {}, "a is no loop"),
    ],
)
def test_what_the_compiler_rejects_is_rejected(
    text: str, parameters: dict[str, object], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.bicep"
    file.write_text(text + "\n", encoding="utf-8")

    with pytest.raises(BicepError, match=says):
        deploy(file, parameters)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("param a = readEnvironmentVariable('A', true ? 'x' : 'y')", "BCP427"),
        ("var b = true ? 'x' : 'y'\nparam a = readEnvironmentVariable('A', b)", "BCP427"),
        ("param a = readEnvironmentVariable('A', '${1}x')", "BCP427"),
        ("param a = readEnvironmentVariable(empty('') ? 'A' : 'B', 'x')", "BCP032"),
        ("param a = loadJsonContent('${1}.json')", "BCP032"),
        (
            "param a = readEnvironmentVariable('NOT_SET')",
            "BCP427: the environment variable NOT_SET does not exist",
        ),
    ],
)
def test_a_parameter_file_that_the_compiler_rejects_is_rejected(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "x.bicepparam"
    file.write_text(f"using './x.bicep'\n{text}\n", encoding="utf-8")

    with pytest.raises(BicepError, match=says):
        read_parameters(file, {"A": "set", "B": "set"})


def test_a_default_may_be_a_variable_that_is_a_literal(tmp_path: Path) -> None:
    file = tmp_path / "x.bicepparam"
    file.write_text(
        "var b = 'x'\nvar c = readEnvironmentVariable('C', b)\nparam a = readEnvironmentVariable('A', c)\n",
        encoding="utf-8",
    )

    assert read_parameters(file) == {"a": "x"}
    assert read_parameters(file, {"C": "y"}) == {"a": "y"}


@pytest.mark.parametrize("call", ["newGuid()", "readEnvironmentVariable('A', 'x')"])
def test_an_unknown_function_is_an_error_and_so_is_one_of_parameter_files(call: str, tmp_path: Path) -> None:
    file = tmp_path / "x.bicep"
    file.write_text(f"output a string = {call}\n", encoding="utf-8")

    with pytest.raises(UnknownFunction, match=call.partition("(")[0]):
        deploy(file, {})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_waits_explicitly_for_what_it_refers_to(file: Path) -> None:
    """As the linter's rule no-unnecessary-dependson, which is an error here."""
    declarations = {each.name: each for each in parse(file.read_text(encoding="utf-8"), file.name)}

    for each in declarations.values():
        waits, rest = parted(each.value)
        assert not waits & referred(rest, declarations), each.name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_parameter_variable_and_existing_resource_is_used(file: Path) -> None:
    """As the linter's rules no-unused-params, no-unused-vars and no-unused-existing-resources, errors here."""
    declarations = parse(file.read_text(encoding="utf-8"), file.name)
    used = {name for each in declarations for name in names([each.value, *each.decorators.values()])}

    declared = [each for each in declarations if each.kind in ("param", "var") or each.existing]
    assert [each.name for each in declared if each.name not in used] == []


def parted(body: Any) -> tuple[set[str], list[Any]]:
    """The names in the dependsOn of a declaration, and everything else of it."""
    if isinstance(body, tree.Conditional):
        waits, rest = parted(body.body)
        return waits, [body.condition, *rest]
    if isinstance(body, tree.Loop):
        waits, rest = parted(body.body)
        return waits, [body.source, *rest]
    if not isinstance(body, tree.ObjectOf):
        return set(), [body]
    named = [value for key, value in body.entries if key == tree.Constant("dependsOn")]
    return {name for value in named for name in names(value)}, [
        value for key, value in body.entries if key != tree.Constant("dependsOn")
    ]


def names(node: Any) -> set[str]:
    """Every name in an expression."""
    if isinstance(node, tree.Name):
        return {node.name}
    if isinstance(node, (tuple, list)):
        return {name for each in node for name in names(each)}
    if isinstance(node, tree.Expression):
        return {name for each in fields(node) for name in names(getattr(node, each.name))}
    return set()


def referred(rest: list[Any], declarations: dict[str, tree.Declaration]) -> set[str]:
    """The names in expressions, and in the variables that they use."""
    found: set[str] = set()
    waiting = names(rest)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            declared = declarations.get(name)
            if declared is not None and declared.kind == "var":
                waiting |= names(declared.value)
    return found
