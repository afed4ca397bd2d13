"""The temporary files of a run of the tests."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

import pytest


def test_no_other_run_of_pytest_can_close_the_files_of_root_to_other_users(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shared = Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}")
    is_root = getattr(os, "geteuid", lambda: 1)() == 0

    assert not (is_root and tmp_path_factory.getbasetemp().is_relative_to(shared))
