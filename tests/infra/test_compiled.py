"""The compiler's own templates agree with the parser: set COMPILED_TEMPLATES to their folder.

Without the compiler, only pycep-parser checks the parser (`test_bicep.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra.bicep.parser import parse
from tests.infra.project import ROOT

pytestmark = pytest.mark.slow

COMPILED = os.environ.get("COMPILED_TEMPLATES", "")
TEMPLATES = sorted((ROOT / "infra").glob("*.bicep"))
MODULE = "Microsoft.Resources/deployments"

Signature = tuple[frozenset[tuple[str, str, bool]], frozenset[tuple[str, str]], frozenset[str]]
"""Parameters with their type and whether they have a default, outputs with their type, types of resources."""


def compiled(template: dict[str, Any]) -> Iterator[Signature]:
    """The signatures of a template and of its modules."""
    declared = template.get("resources", [])
    resources = [*(declared.values() if isinstance(declared, dict) else declared)]
    own = [each for each in resources if each["type"] != MODULE and not each.get("existing")]
    yield (
        frozenset(
            (name, each["type"].lower(), "defaultValue" in each)
            for name, each in template.get("parameters", {}).items()
        ),
        frozenset((name, each["type"].lower()) for name, each in template.get("outputs", {}).items()),
        frozenset(f"{each['type']}@{each['apiVersion']}" for each in own),
    )
    for each in resources:
        if each["type"] == MODULE:
            yield from compiled(each["properties"]["template"])


def parsed(file: Path) -> Iterator[Signature]:
    """The same from a Bicep file."""
    declarations = parse(file.read_text(encoding="utf-8"), file.name)
    resources = [each for each in declarations if each.kind == "resource" and not each.existing]
    yield (
        frozenset((each.name, each.type, each.value is not None) for each in declarations if each.kind == "param"),
        frozenset((each.name, each.type) for each in declarations if each.kind == "output"),
        frozenset(each.type for each in resources),
    )
    for each in declarations:
        if each.kind == "module":
            yield from parsed(file.parent / each.type)


@pytest.mark.skipif(not COMPILED, reason="COMPILED_TEMPLATES is not set")
@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_the_compiler_finds_the_same_parameters_resources_and_outputs(file: Path) -> None:
    template = json.loads((ROOT / COMPILED / f"{file.stem}.json").read_text(encoding="utf-8"))

    assert set(compiled(template)) == set(parsed(file))


BICEP = """
param name string
param size int = 1
module inner 'inner.bicep' = { name: 'inner' }
output id string = name
"""
INNER = """
resource old 'Some.Provider/olds@2024-01-01' existing = { name: 'old' }
resource new 'Some.Provider/news@2025-01-01' = { name: 'new' }
"""


def test_a_difference_from_the_compiled_template_is_found(tmp_path: Path) -> None:
    (tmp_path / "main.bicep").write_text(BICEP, encoding="utf-8")
    (tmp_path / "inner.bicep").write_text(INNER, encoding="utf-8")
    resource = {"type": "Some.Provider/news", "apiVersion": "2025-01-01"}
    module = {"type": MODULE, "apiVersion": "2025-04-01", "properties": {"template": {"resources": [resource]}}}
    template: dict[str, Any] = {
        "parameters": {"name": {"type": "string"}, "size": {"type": "int", "defaultValue": 1}},
        "resources": {"inner": module},
        "outputs": {"id": {"type": "string", "value": ""}},
    }

    assert set(compiled(template)) == set(parsed(tmp_path / "main.bicep"))
    for part in ("parameters", "outputs", "resources"):
        assert set(compiled(template | {part: {}})) != set(parsed(tmp_path / "main.bicep")), part
