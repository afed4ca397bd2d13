"""The consoles of rich, and the layout of help. Imported once they are used, as rich takes a third of a start."""

from __future__ import annotations

from typing import Any

from cyclopts.help import DefaultFormatter, InlineText, PanelSpec
from rich.box import Box
from rich.console import Console

HELP_FORMATTER = DefaultFormatter(panel_spec=PanelSpec(box=Box("    \n" * 8), padding=(0, 1, 0, 2)))
"""The layout of help: panels without frames."""


class OutputConsole(Console):
    """A console that raises BrokenPipeError, for which `run` has an exit code; that of rich is 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error that is handled."""
        raise


class HelpConsole(Console):
    """A console that wraps the descriptions of options, and no line of text, which may be a command."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print the objects; a text without wrapping."""
        is_text = any(isinstance(each, InlineText) for each in objects)
        super().print(*objects, **options, soft_wrap=is_text)
