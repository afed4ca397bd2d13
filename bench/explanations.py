"""Why a target is missed where it is, with what was measured and tried; `docs/benchmarks.md` shows it."""

from __future__ import annotations

# By the key of a target; only shown when it is missed.
EXPLANATIONS: dict[str, str] = {
    "SDK, prebuilt": (
        "Putting messages into batches beforehand takes out of the timing what the public API charges everyone "
        "who starts with documents: `ServiceBusMessage` and `add_message`, which encodes each message twice. "
        "Where a key has many events that is nearly all the work there is: in a profile of 100 events of one key "
        "without a wire, the relay's own functions have 4 % of the time, the SDK and what it calls the rest. "
        "Beside the same work done within the timing (*SDK, built*) the relay is held to the same 90 %."
    ),
}
