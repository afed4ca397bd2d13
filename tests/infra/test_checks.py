"""Runs every check on what `infra/` would deploy."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.infra.project import ROOT, Project, checks

# In one process, files are parsed and queries translated once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("infra")]

MODULES = [import_module(f"tests.infra.checks.{file.stem}") for file in Path(__file__).parent.glob("checks/*.py")]
"""Importing a module registers its checks."""


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(ROOT)


@pytest.mark.parametrize("name", sorted(checks()))
def test_infrastructure(name: str, project: Project) -> None:
    checks()[name](project)
