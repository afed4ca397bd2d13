"""`python -m relay check` for the page."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from relay.cli import check as command
from relay.console.ports import Check
from relay.findings import Finding, Level


def check_of(environment: Mapping[str, str]) -> Check:
    """The check that the command makes with these settings and without options."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    arguments = parser.parse_args([])

    async def check() -> Sequence[Finding]:
        result = await command.run(arguments, environment)
        return [Finding(Level(each["level"]), each["what"], each["remedy"]) for each in result.data["findings"]]

    return check
