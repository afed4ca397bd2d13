"""Writes what relay.toml needs in Azure into infra/relay.json, which the parameter files load:

    python -m infra.parameters

Run it in the root of the project after each change of relay.toml; --check only says whether that was done. Needs
the packages of requirements.txt. docs/deployment.md#with-relaytoml describes the rest of the way.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from relay.config.settings import SERVICEBUS
from relay.config.streams import pairs_of, stream_name
from relay.core.errors import SettingsError
from relay.core.times import format_duration
from relay.routes import file
from relay.routes.file import Destination, RelayFile, Source

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "infra" / "relay.json"


def parameters(found: RelayFile) -> dict[str, Any]:
    """Return the parameters `destinations` and `streams` of the templates, without what is default."""
    streams = list(pairs_of(found))
    used = dict.fromkeys(destination for _, destination in streams)
    return {
        "destinations": [_destination(found.destinations[each]) for each in used],
        "streams": [_stream(found.sources[source], destination) for source, destination in streams],
    }


def _destination(each: Destination) -> dict[str, Any]:
    window_s = each.duplicate_window_s
    return _given(
        name=each.name,
        kind="queue" if each.is_queue else None,
        entity=each.entity,
        connection=each.connection if each.connection != SERVICEBUS else None,
        duplicateWindow=format_duration(timedelta(seconds=window_s)) if window_s else None,
    )


def _stream(source: Source, destination: str) -> dict[str, Any]:
    return _given(
        name=stream_name(source.name, destination),
        database=source.database,
        container=source.container,
        leaseContainer=source.lease_container,
        quarantineContainer=source.quarantine_container,
        feed=source.feed,
        shards=source.shards,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def written(path: Path) -> str:
    """Return the text of relay.json for a relay.toml, which need not exist. Raises SettingsError."""
    return json.dumps(parameters(file.read(path)), indent=2) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write what relay.toml needs in Azure into infra/relay.json.")
    parser.add_argument("--check", action="store_true", help="exit with 1 if infra/relay.json is not up to date")
    given = parser.parse_args(arguments)
    try:
        text = written(ROOT / file.FILE)
        if not given.check:
            TARGET.write_text(text, encoding="utf-8")
        elif TARGET.read_text(encoding="utf-8") != text:
            parser.exit(1, "infra/relay.json is not what relay.toml needs: run python -m infra.parameters\n")
    except SettingsError as error:
        parser.exit(1, f"{error}\n")
    print(_summary(json.loads(text)))


def _summary(content: dict[str, Any]) -> str:
    return f"{_names(content['destinations'])} for the streams {_names(content['streams'])}"


def _names(each: Iterable[dict[str, Any]]) -> str:
    return ", ".join(one["name"] for one in each)


if __name__ == "__main__":
    main()
