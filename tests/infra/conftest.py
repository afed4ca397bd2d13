"""Rewrites the assertions of the checks, which live outside test files: they also run on changed copies."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.infra.checks")
