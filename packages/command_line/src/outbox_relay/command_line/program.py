"""Command lines with cyclopts: parsing, help, errors of one line, and output that is safe to print."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import BoundArguments
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

from outbox_relay.command_line.output import as_typed, color_system, printable

if TYPE_CHECKING:
    from cyclopts.argument import ArgumentCollection

USAGE = 2
"""Exit code of wrong usage."""

_HELP = frozenset(("--help", "-h"))


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its arguments.

    Attributes:
        name: The words that choose the command, such as `quarantine list`.
        function: The function of the command.
        positional: Its positional arguments.
        options: Its keyword arguments, with the defaults of those that were not given.
    """

    name: str
    function: Callable[..., Any]
    positional: tuple[Any, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A program with commands, which `python -m` runs, and an installed script.

    Attributes:
        module: The module that `python -m` runs.
        script: The name of the installed script; None without one.
        summary: One sentence, for the help.
        epilogue: The last lines of the help.
        version: The output of `--version`.
        add_commands: Adds the commands to the app.
        read_word: Decodes the text of a value, and raises ValueError. It runs once it is known which argument has
            the value, so no decoded text becomes an option.
        redact: Returns an error without what is secret.
    """

    module: str
    script: str | None
    summary: str
    epilogue: str
    version: str
    add_commands: Callable[[App], None]
    read_word: Callable[[str], str] = str
    redact: Callable[[str], str] = str

    @property
    def name(self) -> str:
        """The command that runs the program as this process was started, without the path of Python."""
        if self.script is not None and Path(sys.argv[0]).stem == self.script:
            return self.script
        return f"python -m {self.module}"

    def as_typed(self, text: str) -> str:
        """Return the text with each `python -m …` as it is typed here: as the script, or with this Python."""
        return as_typed(re.sub(rf"(?<![\w./-])python -m {re.escape(self.module)}\b", self.name, text))

    def app(self, name: str | None = None) -> App:
        """Return the app with its commands; by default under the name with which it was started."""
        app = App(
            name=name or self.as_typed(self.name),
            help=self.summary,
            help_epilogue=self.epilogue,
            help_format="plaintext",
            version=self.version,
            default_parameter=Parameter(
                negative=(), allow_repeating=True, json_list=False, json_dict=False, show_default=_default_in_help
            ),
            config=self._decode,
            print_error=False,
            exit_on_error=False,
        )
        self.add_commands(app)
        if self.script is not None:
            about = f"Install the completion of {self.script} for bash, zsh, fish or PowerShell."
            app.command(self._install_completion, name="--install-completion", help=about)
        return app

    def parse(self, words: Sequence[str]) -> Call:
        """Return the command that the words choose, with its arguments.

        Raises:
            ImportError: A package of the command is missing.
            SystemExit: With 0 after the help, the version or the completion that was asked for; with 2 after one
                line on standard error that names what is wrong.
        """
        app = self.app()
        try:
            names, apps, _ = app.parse_commands(words)
            function, bound, _ = app.parse_args(words)
        except CycloptsError as error:
            self.fail(self.redact(_explain(error)))
        except ImportError as error:
            # Of a module with a command: cyclopts names the module, and not the package that it lacks.
            raise error.__cause__ or error from None
        if function == app.help_print:
            if not _HELP & {*words}:
                known = ", ".join(each for each in apps[-1].resolved_commands() if not each.startswith("-"))
                self.fail(f"{' '.join([*names, ''])}needs a command: {known}")
            self._print_help(app, bound)
            raise SystemExit(0)
        if isinstance(getattr(function, "__self__", None), App):
            # Of a command, cyclopts would print the version of its own.
            print(self.version)
            raise SystemExit(0)
        if function == self._install_completion:
            function(*bound.args, **bound.kwargs)
            raise SystemExit(0)
        bound.apply_defaults()
        return Call(" ".join(names), function, bound.args, bound.kwargs)

    def _print_help(self, app: App, bound: BoundArguments) -> None:
        """Print the help of the command that was chosen, with commands as they are typed here."""
        from outbox_relay.command_line.rendering import HELP_FORMATTER, HelpConsole

        app.help_formatter = HELP_FORMATTER
        console = HelpConsole(color_system=color_system(), highlight=False, emoji=False, markup=False)
        bound.arguments["console"] = console
        with console.capture() as captured:
            app.help_print(*bound.args, **bound.kwargs)
        print(re.sub(r" +$|(?<=\n\n)\n+", "", self.as_typed(captured.get()), flags=re.MULTILINE), end="")

    def fail(self, message: str) -> NoReturn:
        """End the process with exit code 2, and with the message on standard error."""
        print(self.as_typed(f"{self.name}: error: {printable(message)}"), file=sys.stderr)
        raise SystemExit(USAGE)

    def _decode(self, _app: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
        for argument in arguments:
            try:
                argument.tokens = [each.evolve(value=self.read_word(each.value)) for each in argument.tokens]
            except ValueError as error:
                raise CycloptsError(msg=f"{argument.name}: {error}") from error

    def _install_completion(
        self, *, shell: Literal["bash", "zsh", "fish", "powershell"] | None = None, output: Path | None = None
    ) -> None:
        """Install completion of the installed script, however this process was started.

        Args:
            shell: the shell, if not the one that runs this
            output: where to write the script, if not where the shell looks for it
        """
        from cyclopts.completion import ShellDetectionError

        try:
            path = self.app(self.script).install_completion(
                shell=shell, output=output, add_to_startup=output is None
            )
        except ShellDetectionError:
            self.fail("--install-completion: the shell is unknown: add --shell bash, zsh, fish or powershell")
        except OSError as error:
            self.fail(f"--install-completion: {error}: give another file with --output")
        print(f"Wrote {path}. Open a new shell to complete the words of {self.script}.")


def _default_in_help(value: Any) -> str | None:
    if value is False or value in (None, "", ()):
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def _explain(error: CycloptsError) -> str:
    """Return the error in one sentence, with the remedy where cyclopts has none."""
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected arguments: {' '.join(error.unused_tokens or ())}"
    if isinstance(error, MissingArgumentError) and error.keyword:
        return f"{error} To give a value that begins with -, write {error.keyword}=VALUE."
    return str(error)
