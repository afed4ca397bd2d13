"""An app's settings: from env files, local.settings.json and the process environment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dotenv import dotenv_values

from outbox_relay.emulators import jsonc
from outbox_relay.emulators.functions.errors import HostError

LOCAL_SETTINGS = "local.settings.json"

_layers: list[dict[str, str]] = []
"""The settings that are applied to the process environment now, the last ones last."""
_outside: dict[str, str | None] = {}
"""The value of each of their names without them; None if the name is not set."""


def read_env_file(path: Path) -> dict[str, str]:
    """Read the settings of an env file: lines `KEY=value`, `KEY='value'`, `export KEY=value`, comments.

    Values are literal: `$` in an account key is not a reference. Raises HostError if the file cannot be read
    or a line has no value.
    """
    if not path.is_file():
        raise HostError(f"the env file {path} does not exist")
    try:
        values = dotenv_values(path, interpolate=False, encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise HostError(f"the env file {path} is not UTF-8: {error}") from error
    bare = sorted(name for name, value in values.items() if value is None)
    if bare:
        raise HostError(f"the env file {path} has lines without a value: {', '.join(bare)}. Write KEY='value'.")
    return {name: value for name, value in values.items() if value is not None}


def read_local_settings(app_directory: Path) -> dict[str, str]:
    """Read the `Values` of the app's local.settings.json, or nothing if there is no such file.

    Raises HostError.
    """
    path = app_directory / LOCAL_SETTINGS
    if not path.is_file():
        return {}
    try:
        content = jsonc.read(path)
    except jsonc.JsonError as error:
        raise HostError(f"{path} is {error}") from error
    values = content.get("Values", {}) if isinstance(content, dict) else None
    if not isinstance(values, dict):
        raise HostError(f'{path} must be an object with an object "Values"')
    if content.get("IsEncrypted"):
        raise HostError(f"{path} is encrypted: decrypt it with `func settings decrypt`")
    return {name: _as_setting(value) for name, value in values.items()}


def _as_setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@contextmanager
def applied(settings: Mapping[str, str], *, defaults: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Put the settings into the process environment while the block lasts; yields the whole environment.

    `settings` override the environment, which overrides `defaults` (local.settings.json), as with `func`.
    The time zone follows TZ. Blocks of several hosts may end in any order.
    """
    layer = {**{name: value for name, value in defaults.items() if name not in os.environ}, **settings}
    for name in layer:
        _outside.setdefault(name, os.environ.get(name))
    _layers.append(layer)
    os.environ.update(layer)
    _follow_time_zone()
    try:
        yield dict(os.environ)
    finally:
        _remove(layer)
        _follow_time_zone()


def _remove(layer: dict[str, str]) -> None:
    left = [each for each in _layers if each is not layer]
    if len(left) == len(_layers):
        return
    _layers[:] = left
    for name in layer:
        values = [each[name] for each in _layers if name in each]
        value = values[-1] if values else _outside.pop(name)
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _follow_time_zone() -> None:
    # On Windows the time zone does not follow the environment.
    if hasattr(time, "tzset"):
        time.tzset()
