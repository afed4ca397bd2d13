"""Why a target is missed where it is, with what was measured and tried; `docs/benchmarks.md` shows it."""

from __future__ import annotations

# By the key of a target; only shown when it is missed.
EXPLANATIONS: dict[str, str] = {
    "SDK, prebuilt": (
        "Putting messages into batches beforehand takes out of the timing what the public API charges everyone "
        "who starts with documents: making a message, and `add_message`, which encodes it twice. Where a key has "
        "many events that is nearly all the work there is: in a profile of 100 events of one key without a wire, "
        "the relay's own functions have 4 % of the time, the SDK and what it calls the rest. Nobody can do it "
        "within the timing by the public API; encoding messages ourselves into the batch's private fields could. "
        "Beside the same work done within the timing (*SDK, built*) the relay is held to the same 90 %; and where "
        "waiting decides rather than the processor (10 and 30 ms, 100x1) it reaches 98 % of this ceiling too."
    ),
    "SDK, built": (
        "Met wherever anything is waited for: 91 to 100 % of this ceiling in every workload at 10 and 30 ms. "
        "At 0 ms the processor is all there is, and it is 81 to 93 %: least for events that share their send "
        "with no other (100x1, about 260 µs an event, 30 to 50 more than the SDK alone). Found by leaving one"
        " thing out at a time, in turns: 8 µs are `asyncio.timeout` around each send, without which the SDK "
        "can wait for ever (it does when a rejection comes without its `info` field), 5 lending the sender, 5"
        " the instruments, 4 the garbage collector's. Beside the SDK with `ServiceBusMessage`, which its "
        "users write, the relay was at 94 % and more in every workload. What is left could be had by giving "
        "up a guard; simplicity and safety come first."
    ),
    "own-processor-time": (
        "Met where events share a send (10x10, 1x100). An event that travels alone (100x1) bears alone what a "
        "batch shares: about 4 µs for the guard around the send (`asyncio.timeout`), 2 for lending the sender, 2 "
        "for the instruments, and the coroutines between. The SDK's side is the cheapest form of its public API; "
        "beside `ServiceBusMessage`, which its users write, the difference is below zero in all three."
    ),
    "article-10-10x10": (
        "The processor stands in the way. The article's handler takes about 123 ms for its ten sends one after "
        "another; seven times faster is 17.6 ms. The answer takes 10 of these. Before the last batch can leave, "
        "100 messages must be encoded (`add_message` alone 68 µs each, so 6.8 ms) and 10 batches sent (0.27 ms "
        "each): 19.5 ms, without a line of the relay's. The relay takes 23, the SDK alone 22. Tried: building "
        "messages as AMQP instead of as `ServiceBusMessage` (123 to 98 µs an event; 4.5 to 5.4 times). At 30 ms, "
        "where waiting weighs more, it is 7 times."
    ),
    "article-0-1x100": (
        "The relay's message says more than the article's: three application properties, which the SDK encodes "
        "twice, about 13 µs an event. Beside the article's handler with the same message (*article, same "
        "message*) the relay is 1.14 times as fast. Tried: building messages as AMQP, which took it from "
        "0.74 to 0.94."
    ),
}
