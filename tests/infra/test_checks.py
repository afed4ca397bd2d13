"""Runs every check on what `infra/` would deploy."""

from __future__ import annotations

import pytest

from tests.infra.checks import (
    alerts,
    app,
    console,
    cosmos,
    names,
    network,
    queries,
    security,
    servicebus,
    settings,
    sql,
    sql_alerts,
    workbook,
)
from tests.infra.project import ROOT, Project, checks

# In one process, files are parsed and queries translated once.
pytestmark = pytest.mark.xdist_group("infra")

MODULES = (
    alerts,
    app,
    console,
    cosmos,
    names,
    network,
    queries,
    security,
    servicebus,
    settings,
    sql,
    sql_alerts,
    workbook,
)
"""Importing a module registers its checks."""


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(ROOT)


@pytest.mark.parametrize("name", sorted(checks()))
def test_infrastructure(name: str, project: Project) -> None:
    checks()[name](project)
