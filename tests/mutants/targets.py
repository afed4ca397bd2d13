"""Which tests judge the mutants of which file: those that cover it, the quick ones first."""

from __future__ import annotations

_RELAY = {
    "errors": ("errors",),
    "events": ("events",),
    "selection": ("selection", "poison"),
    "poison": ("poison",),
    "brake": ("brake",),
    "fence": ("fence",),
    "deadline": ("deadline",),
    "outcome": ("outcome", "poison"),
    "settings": ("settings", "host"),
    "messages": ("messages",),
    "ledger": ("ledger",),
    "changes": ("changes",),
    "host": ("host",),
    "leases": ("leases",),
    "jsontext": ("jsontext",),
    "turn": ("outcome", "turn", "publisher"),
    "publisher": ("publisher", "turn"),
    "senders": ("publisher", "turn"),
    "pipeline": ("pipeline", "pipeline_text"),
    "evidence": ("evidence",),
    "headroom": ("headroom",),
    "tracelinks": ("tracelinks",),
    "quarantine": ("quarantine",),
    "quarantine_record": ("quarantine_record",),
    "parking": ("parking",),
    "holds": ("holds",),
    "connections": ("connections",),
    "containers": ("containers",),
    "logs": ("logs",),
    "telemetry": ("telemetry",),
    "attempt": ("attempt",),
    "__main__": ("main",),
}

_OPERATIONS = {
    "canary": ("unit/relay/test_smoke_comparison",),
    "check": ("unit/relay/test_judgement", "unit/relay/test_check_command"),
    "cli": ("unit/relay/test_cli", "unit/relay/test_operations_inputs"),
    "committed": (
        *("unit/relay/test_replay_order", "unit/relay/test_replay_command"),
        *("unit/relay/test_quarantine_commands", "integration/test_operators_replay"),
    ),
    "comparison": ("unit/relay/test_smoke_comparison",),
    "console": ("unit/relay/test_console",),
    "containers": ("integration/test_operators_smoke",),
    "environment": ("unit/relay/test_operations_inputs",),
    "facts": ("unit/relay/test_judgement",),
    "holdings": ("integration/test_operators_parked", "integration/test_operators_set_aside"),
    "inspection": ("unit/relay/test_judgement", "unit/relay/test_check_command"),
    "judgement": ("unit/relay/test_judgement",),
    "ordered": ("unit/relay/test_ordered",),
    "oversized": ("unit/relay/test_smoke_command",),
    "parked_release": ("unit/relay/test_quarantine_commands",),
    "quarantine": ("unit/relay/test_quarantine_commands", "unit/relay/test_operations_inputs"),
    "records": ("unit/relay/test_records", "integration/test_operators_quarantine"),
    "release": ("unit/relay/test_quarantine_commands",),
    "replay": ("unit/relay/test_replay_command", "unit/relay/test_replay_state"),
    "replay_state": ("unit/relay/test_replay_state",),
    "results": ("unit/relay/test_cli",),
    "scan": ("unit/relay/test_operations_scan", "unit/relay/test_check_command"),
    "set_aside": ("unit/relay/test_quarantine_commands", "unit/relay/test_operations_inputs"),
    "smoke": ("unit/relay/test_smoke_command",),
    "subscriptions": ("unit/relay/test_smoke_command",),
    "successors": ("unit/relay/test_successors",),
    "times": ("unit/relay/test_operations_inputs",),
}

_UNIT = "tests/unit/outbox/test_{}.py"
_INTEGRATION = "tests/integration/test_outbox_{}.py"
# The unit tests, then the integration tests.
_OUTBOX: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "batch": (("batches", "order", "relayable"), ()),
    "context": (("batches", "order"), ("commits", "lost_responses", "stale_reads")),
    "data_object": (("batches", "relayable", "order"), ()),
    "entities": (("entities", "batches", "order"), ()),
    "errors": (("errors",), ()),
    "events": (("entities", "order"), ()),
    "execution": ((), ("stale_reads", "lost_responses")),
    "failures": (("failures",), ()),
    "paging": (("paging",), ("reading",)),
    "payload": (("entities", "relayable", "batches"), ()),
    "relayable": (("relayable",), ()),
    "repositories": (("batches", "order"), ("reading", "commits")),
    "session": ((), ("stale_reads",)),
    "traceparent": (("batches",), ()),
    "unit_of_work": (("batches",), ("commits",)),
}

TARGETS: dict[str, tuple[str, ...]] = {
    **{
        f"relay/{module}.py": tuple(f"tests/unit/relay/test_{name}.py" for name in names)
        for module, names in _RELAY.items()
    },
    **{
        f"relay/cli/{module}.py": tuple(f"tests/{name}.py" for name in names)
        for module, names in _OPERATIONS.items()
    },
    "function_app.py": ("tests/unit/test_function_app.py",),
    "host.json": ("tests/unit/test_host_json.py", "tests/unit/relay/test_host.py"),
    **{
        f"outbox/src/outbox/{module}.py": (
            *(_UNIT.format(name) for name in units),
            *(_INTEGRATION.format(name) for name in integrations),
        )
        for module, (units, integrations) in _OUTBOX.items()
    },
}
