"""The operators' commands that the page offers to copy."""

from __future__ import annotations

from dataclasses import dataclass

from relay.console.formats import shell_word
from relay.console.model import QuarantineGroup, QuarantineRecord

_QUARANTINE = "python -m relay quarantine"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for one outbox.

    Attributes:
        options: What every command of `quarantine` takes beside its own, such as `--source sql`.
    """

    options: str = ""

    def release_group(self, group: QuarantineGroup) -> str:
        """Release every record of a reason."""
        return self._line("release", "--reason", group.reason)

    def discard_group(self, group: QuarantineGroup) -> str:
        """Discard every record of a reason, after a question."""
        return self._line("discard", "--reason", group.reason)

    def show_record(self, record: QuarantineRecord) -> str:
        """Show a record with its document."""
        return self._line("show", record.id)

    def release_record(self, record: QuarantineRecord) -> str:
        """Release one record."""
        return self._line("release", record.id)

    def release_key(self, partition_key: str) -> str:
        """Release every record of a key in order, which unparks it."""
        # With "=", as a key may begin with a dash.
        return self._line("release", "--all", f"--partition-key={partition_key}")

    def _line(self, command: str, *words: str) -> str:
        options = [self.options] if self.options else []
        dashed = ["--"] if words[0].startswith("-") and not words[0].startswith(("--reason", "--all")) else []
        return " ".join([_QUARANTINE, command, *options, *dashed, *(shell_word(each) for each in words)])
