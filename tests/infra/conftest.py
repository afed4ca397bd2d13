"""The checks live outside of test files, as they run on changed copies of `infra/` too."""

from __future__ import annotations

import pytest

for module in ("cosmos", "functions", "monitoring", "names", "security", "servicebus", "workbook"):
    pytest.register_assert_rewrite(f"tests.infra.checks_{module}")
