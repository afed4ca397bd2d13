"""What `infra/` would deploy, for a trial and for production, held against what the guarantees rest on."""

from __future__ import annotations

import pytest

from tests.infra import (
    checks_cosmos,
    checks_functions,
    checks_monitoring,
    checks_names,
    checks_security,
    checks_servicebus,
    checks_workbook,
)
from tests.infra.project import ROOT, Project, checks

# One process reads the files and translates the queries for all of a group.
pytestmark = pytest.mark.xdist_group("infra")

MODULES = (
    checks_cosmos,
    checks_functions,
    checks_monitoring,
    checks_names,
    checks_security,
    checks_servicebus,
    checks_workbook,
)


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(ROOT)


@pytest.mark.parametrize("name", sorted(checks()))
def test_infrastructure(name: str, project: Project) -> None:
    checks()[name](project)
