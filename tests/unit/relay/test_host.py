from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.errors import SettingsError
from relay.settings import ATTEMPT_MARGIN_S, Settings, function_timeout_s

ROOT = Path(__file__).resolve().parents[3]


def app(folder: Path, **content: object) -> Path:
    (folder / "host.json").write_text(json.dumps({"version": "2.0", **content}))
    return folder


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:10:00", 600), ("01:00:00.5", 3600.5), ("1.02:03:04", 93_784), ("-1", None), (None, None)],
)
def test_the_timeout_is_read_from_host_json(tmp_path: Path, text: str | None, seconds: float | None) -> None:
    content = {} if text is None else {"functionTimeout": text}

    assert function_timeout_s(app(tmp_path, **content), {}) == seconds


def test_a_setting_overrides_it(tmp_path: Path) -> None:
    folder = app(tmp_path, functionTimeout="00:10:00")

    assert function_timeout_s(folder, {"AzureFunctionsJobHost__functionTimeout": "00:05:00"}) == 300


@pytest.mark.parametrize("text", ["ten minutes", "600", ""])
def test_what_is_no_time_span_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="functionTimeout"):
        function_timeout_s(app(tmp_path, functionTimeout=text), {})


def test_a_missing_host_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"host\.json"):
        function_timeout_s(tmp_path, {})


def test_the_projects_own_leaves_room_for_an_attempt() -> None:
    connections = {
        "COSMOS": "AccountEndpoint=https://a/;AccountKey=YQ==;",
        "SERVICEBUS": "Endpoint=sb://n;SharedAccessKeyName=k;SharedAccessKey=k",
    }
    timeout_s = function_timeout_s(ROOT, {})

    assert timeout_s == 600
    settings = Settings.from_environment(connections, function_timeout_s=timeout_s)
    assert settings.attempt_timeout_s + ATTEMPT_MARGIN_S < timeout_s
