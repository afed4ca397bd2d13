"""Which tests judge the mutants of which file: those that cover it, the quick ones first."""

from __future__ import annotations

_UNIT = "tests/unit/relay"

TARGETS: dict[str, tuple[str, ...]] = {
    "relay/errors.py": (f"{_UNIT}/test_errors.py",),
    "relay/events.py": (f"{_UNIT}/test_events.py",),
    "relay/selection.py": (f"{_UNIT}/test_selection.py", f"{_UNIT}/test_poison.py"),
    "relay/poison.py": (f"{_UNIT}/test_poison.py",),
    "relay/brake.py": (f"{_UNIT}/test_brake.py",),
    "relay/fence.py": (f"{_UNIT}/test_fence.py",),
    "relay/deadline.py": (f"{_UNIT}/test_deadline.py",),
    "relay/outcome.py": (f"{_UNIT}/test_outcome.py", f"{_UNIT}/test_poison.py"),
    "relay/settings.py": (f"{_UNIT}/test_settings.py", f"{_UNIT}/test_host.py"),
    "relay/messages.py": (f"{_UNIT}/test_messages.py",),
    "relay/ledger.py": (f"{_UNIT}/test_ledger.py",),
    "relay/changes.py": (f"{_UNIT}/test_changes.py",),
    "relay/host.py": (f"{_UNIT}/test_host.py",),
    "relay/leases.py": (f"{_UNIT}/test_leases.py",),
    "relay/jsontext.py": (f"{_UNIT}/test_jsontext.py",),
    "relay/headroom.py": (f"{_UNIT}/test_headroom.py",),
    "relay/tracelinks.py": (f"{_UNIT}/test_tracelinks.py",),
    "relay/turn.py": (f"{_UNIT}/test_turn.py", f"{_UNIT}/test_publisher.py"),
    "relay/pipeline.py": (f"{_UNIT}/test_pipeline.py"),
    "relay/publisher.py": (f"{_UNIT}/test_publisher.py", f"{_UNIT}/test_turn.py"),
    "relay/senders.py": (f"{_UNIT}/test_publisher.py", f"{_UNIT}/test_turn.py"),
    "function_app.py": ("tests/unit/test_function_app.py",),
    "host.json": ("tests/unit/test_host_json.py", f"{_UNIT}/test_host.py"),
}
