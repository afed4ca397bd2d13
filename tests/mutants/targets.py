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

_UNIT = "tests/unit/outbox/test_{}.py"
_INTEGRATION = "tests/integration/test_outbox_{}.py"
# The unit tests, then the integration tests.
_OUTBOX: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "answers": (("answers",), ()),
    "batch": (("batches", "order", "relayable"), ()),
    "context": (("batches", "order"), ("commits", "lost_answers", "stale_reads")),
    "data_object": (("batches", "relayable", "order"), ()),
    "entities": (("entities", "batches", "order"), ()),
    "errors": (("errors",), ()),
    "events": (("entities", "order"), ()),
    "execution": ((), ("stale_reads", "lost_answers")),
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
