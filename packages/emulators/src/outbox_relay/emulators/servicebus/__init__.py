"""A Service Bus namespace on a laptop: an AMQP 1.0 broker with the semantics of Service Bus, in memory.

    command                       the broker as a process
    server.ServiceBusServer       start, stop, connection strings
    listeners                     ports, plain and with TLS                      → certificates
    │
    │ HTTP
    ├─ admin                      health, counts, statuses, refusals, edges    → fault_api, fault_injection
    ├─ administration/            the management API: entities and rules as Atom entries
    │
    │ AMQP
    ├─ idle_links                 ends links and connections that idle
    ├─ attach                     the address of a link → its endpoint
    │   ├─ cbs                    $cbs: tokens                                 → requests
    │   ├─ management/            $management: peek, schedule, defer, rules    → requests
    │   ├─ publishing             links from senders                           → acknowledgements, delayed_answers
    │   ├─ consuming              links to receivers                           → settlement, delayed_answers
    │   └─ session_consuming      links to receivers of a session
    ├─ websockets                 WebSocket ↔ connection
    ├─ connection                 socket ↔ engine ↔ links                      → engine, frames, sasl, frame_faults
    ├─ broker                     what connections share                       → auth
    ├─ connections                all that are open, and what ends them
    ├─ link_table                 the links of one connection
    ├─ links                      what every link has in common                → link_faults
    │
    │ entities, without a network
    └─ namespace                  entities by address
        └─ topic                  queues, topics, subscriptions                → ends, filters, sql/
            ├─ ends               the sending and the receiving side           → duplicates
            ├─ session_queue      messages by session                          → sessions
            ├─ queue              enqueue, receive, settle, expire, forward    → message_store, ready_queue,
            │                                                                    locks, forwarding, partitions
            └─ entry              a message in a queue
                └─ message        a message as it was sent                     → parsing, sections, codec/

Used by all of them: entities and entity_types (how entities are set up, from a Config.json file), authorization
(keys and their rights), timers (one timer queue), errors (AMQP conditions), edges (what varies, drawn from a seed
and counted), fault_plans (injected faults). Imports go down this list; nothing imports upwards.

Served: queues, topics and subscriptions with SQL and correlation rules; forwarding; sessions with state; peek-lock
and receive-and-delete; complete, abandon, defer, dead-letter, delete in batches; renewal of locks; scheduled
messages; peek; duplicate detection; partitioned entities; time to live; batches; limits of the Standard and
Premium tiers; shared access signatures, authorization rules and SASL; TLS and AMQP over WebSockets; creating,
changing and deleting entities over HTTP.

Not served, and answered with the service's kind of error: transactions, sends by way of another entity. Absent:
Microsoft Entra ID, quotas on the size of an entity, replication, messages on disk. Throttling and failures are
only injected.
"""
