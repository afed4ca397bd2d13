"""The components that a tag releases (docs/releasing.md), and where their tests are."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from tests.support.pages import ROOT

APP = "app"
TYPES = "types"
"""Not released: the libraries and their examples, as the type checkers of users see them."""


@dataclass(frozen=True, slots=True)
class Library:
    """A distribution for PyPI.

    Attributes:
        name: As in its tag, and the last part of its folder.
        folder: Relative to the repository.
        module: The package that it installs.
        examples: The tests that run its README's examples, with pytest.
        beside: Further packages that the examples import.
        needs: Names of the libraries here that it needs, which PyPI does not have before they are released.
        is_typed: Whether each name of each module has a type that every checker knows.
    """

    name: str
    folder: str
    module: str
    examples: tuple[str, ...]
    beside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    is_typed: bool = True

    @property
    def project(self) -> dict[str, Any]:
        """The table `project` of its metadata."""
        text = (ROOT / self.folder / "pyproject.toml").read_text(encoding="utf-8")
        found: dict[str, Any] = tomllib.loads(text)["project"]
        return found

    @property
    def distribution(self) -> str:
        """The name on PyPI."""
        return str(self.project["name"])

    @property
    def commands(self) -> list[str]:
        """The names of the commands that it installs."""
        return [*self.project.get("scripts", {})]

    @property
    def extras(self) -> list[str]:
        """The names of its extras."""
        return [*self.project.get("optional-dependencies", {})]


LIBRARIES = (
    Library("command_line", "packages/command_line", "outbox_relay.command_line", ()),
    Library(
        "changefeed",
        "outbox_relay/changefeed",
        "outbox_relay.changefeed",
        ("tests/changefeed/test_distribution.py",),
        needs=("command_line",),
    ),
    Library(
        "outbox",
        "packages/outbox",
        "outbox_relay.outbox",
        ("tests/integration/test_outbox_documentation.py",),
        ("fastapi", "httpx"),
    ),
    # Before `inbox`, whose examples use the broker.
    Library(
        "emulators",
        "packages/emulators",
        "outbox_relay.emulators",
        (),  # packages/emulators/check.sh runs them in an environment of its own
        ("pytest", "azure-servicebus"),
        needs=("command_line",),
        is_typed=False,  # the parser, of lark, is not
    ),
    Library(
        "inbox",
        "packages/inbox",
        "outbox_relay.inbox",
        ("tests/integration/test_receiving_documentation.py",),
        needs=("command_line",),
    ),
    Library(
        "operator",
        "packages/operator",
        "outbox_relay.operator",
        ("tests/integration/test_operator_distribution.py",),
        needs=("command_line", "changefeed"),
        is_typed=False,  # commands, and no library
    ),
)
