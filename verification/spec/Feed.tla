--------------------------------- MODULE Feed ---------------------------------
(* An SQL feed. Writers insert events; each draws a number of a sequence then, and commits later, in any order, or
   never. Whoever reads committed rows first gives them positions, shard by shard. Consumers follow the positions.
   Any step may be delayed for ever.

   In generation 2, a reader numbers one shard, and moves its rows from the outbox to the feed; there are prune, and
   the backfill of rows that are older than the feed. In generation 1, a sweeper numbers all shards of its group. *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the processes that read, each with cursors of its own
    Generation,     \* 1 or 2
    Count,          \* the number of shards
    Writers,        \* the number of transactions, of one event each
    Old,            \* the number of events that are older than the feed
    Page,           \* the number of rows of a shard that get positions at once
    Anyway,         \* 1 if old events may come after new ones: backfill --anyway
    Elsewhere,      \* 1 if one process keeps its cursors elsewhere, where prune does not see them

    \* Safeguards: outbox_relay/changefeed/postgresql/migrations and outbox_relay/changefeed/sqlserver/migrations. Each is TRUE.
    ReadersNumber,          \* positions are given to committed rows, by readers: a writer's own number is none
    NumbersUnderLock,       \* one process at a time gives the positions of a shard
    SnapshotAfterLock,      \* what is committed is looked up after the lock was got: READ COMMITTED, a new statement
    SortsBySequence,        \* rows of one snapshot get positions in the order of their sequence numbers
    TakesTheFirst,          \* where not all rows get positions, those with the first numbers do
    PruneWaitsForConsumers, \* outbox_relay/changefeed/retention.py: no row is deleted that a consumer has not read
    PruneCountsTheAbsent,   \* a consumer without a claim in a shard has read nothing of it
    RefusesPrunedCursors,   \* a cursor behind deleted rows is refused
    RefusesUsedShards,      \* outbox_relay/changefeed/backfill.py: no backfill of a shard that was read or written to
    RefusesAfterPrune,      \* no backfill where rows may have been on the feed
    ListsInOneSnapshot,     \* the rows to move are those that are neither in the outbox nor on the feed at one time
    MovesInOrder,           \* they are moved in the order of the list
    MovesUnderLock,         \* one process at a time moves them
    MovesRowsWhole,         \* a row goes to the outbox and from the list in one transaction

    \* Assumptions. Each is TRUE.
    SequenceHasNoCache,     \* sequence numbers follow time: reads refuse a sequence with a cache
    SnapshotsAreConsistent, \* a snapshot that has a transaction has all that were committed before it began
    WritersWaitForBackfill  \* no writer is at work during a backfill without --anyway

VARIABLES
    state,      \* transaction -> "new", "open", "committed" or "gone"
    before,     \* transaction -> those that were committed when it began
    number,     \* transaction -> its sequence number, None before it has one
    drawn,      \* the numbers that were drawn from the sequence
    outbox,     \* the committed rows without a position: <<number, event>>
    feed,       \* shard -> the rows with one: <<position, event>>
    last,       \* shard -> the last position given
    low,        \* shard -> the low-water mark: rows up to it are deleted
    list,       \* the events that a backfill has still to move, None without one
    onFeed,     \* the events that were on the feed when a backfill looked, None
    moving,     \* process -> the event that it moves, None
    phase,      \* process -> "idle", "waiting" or "numbering"
    job,        \* process -> the shards that it numbers
    base,       \* process -> the last positions when it got the lock
    snapshot,   \* process -> the rows that it saw
    keeps,      \* the processes whose cursors are in the database
    cursor,     \* process -> shard -> the position that it has read up to
    got         \* process -> shard -> the events that it has read, in order

writing == <<state, before, number>>
backfilling == <<list, onFeed, moving>>
numbering == <<phase, job, base, snapshot>>
reading == <<keeps, cursor, got>>
rows == <<drawn, outbox, feed, last, low>>
vars == <<writing, rows, backfilling, numbering, reading>>

Shards == 1..Count
Transactions == 1..(Old + Writers)
Numbers == 1..(Old + Writers + 1)
ShardOf(x) == 1 + (x % Count)
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Committed == {x \in Transactions : state[x] = "committed"}
EventsIn(pairs) == {pair[2] : pair \in pairs}
OnFeed == UNION {EventsIn(feed[s]) : s \in Shards}
Waiting(s) == {row \in outbox : ShardOf(row[2]) = s}
Unread(p, s) == {row \in feed[s] : row[1] > cursor[p][s] /\ row[1] > low[s]}
Least(pairs) == CHOOSE pair \in pairs : \A other \in pairs : pair[1] <= other[1]

Init ==
    /\ state = [x \in Transactions |-> IF x <= Old THEN "committed" ELSE "new"]
    /\ before = [x \in Transactions |-> IF x <= Old THEN 1..(x - 1) ELSE {}]
    /\ number = [x \in Transactions |-> None]
    /\ drawn = {} /\ outbox = {} /\ feed = [s \in Shards |-> {}]
    /\ last = [s \in Shards |-> 0] /\ low = [s \in Shards |-> 0]
    /\ list = None /\ onFeed = None /\ moving = [p \in Procs |-> None]
    /\ phase = [p \in Procs |-> "idle"] /\ job = [p \in Procs |-> {}]
    /\ base = [p \in Procs |-> None] /\ snapshot = [p \in Procs |-> {}]
    /\ keeps \in {kept \in SUBSET Procs : Cardinality(kept) = Cardinality(Procs) - Elsewhere}
    /\ cursor = [p \in Procs |-> [s \in Shards |-> 0]] /\ got = [p \in Procs |-> [s \in Shards |-> <<>>]]

\* The numbers that the sequence may give next.
Next_numbers == IF SequenceHasNoCache THEN {n \in Numbers \ drawn : \A m \in Numbers \ drawn : n <= m}
                ELSE Numbers \ drawn

------------------------------------------------------------------------------
(* Writers. *)

Insert(x) ==
    /\ state[x] = "new" /\ \A y \in 1..(x - 1) : state[y] # "new"
    /\ WritersWaitForBackfill /\ Anyway = 0 => list = None
    /\ state' = [state EXCEPT ![x] = "open"]
    /\ before' = [before EXCEPT ![x] = Committed]
    /\ \E n \in Next_numbers : number' = [number EXCEPT ![x] = n] /\ drawn' = drawn \cup {n}
    /\ UNCHANGED <<outbox, feed, last, low, backfilling, numbering, reading>>

Commit(x) ==
    /\ state[x] = "open"
    /\ state' = [state EXCEPT ![x] = "committed"]
    /\ IF ReadersNumber
       THEN outbox' = outbox \cup {<<number[x], x>>} /\ UNCHANGED feed
       ELSE feed' = [feed EXCEPT ![ShardOf(x)] = @ \cup {<<number[x], x>>}] /\ UNCHANGED outbox
    /\ UNCHANGED <<before, number, drawn, last, low, backfilling, numbering, reading>>

\* Rolled back, or its session was killed. The number is used up.
Abort(x) ==
    /\ state[x] = "open"
    /\ state' = [state EXCEPT ![x] = "gone"]
    /\ UNCHANGED <<before, number, rows, backfilling, numbering, reading>>

------------------------------------------------------------------------------
(* Positions: read_feed, or sweep. The lock, the snapshot and the positions are in one transaction. *)

Seen(shards) ==
    LET committed == UNION {Waiting(s) : s \in shards}
        isFirst(row, among) == Cardinality({r \in among : ShardOf(r[2]) = ShardOf(row[2]) /\ r[1] <= row[1]}) <= Page
        page(among) ==
            IF TakesTheFirst THEN {{row \in among : isFirst(row, among)}}
            ELSE {some \in SUBSET among : \A s \in shards : Cardinality({r \in some : ShardOf(r[2]) = s}) <= Page}
    IN  UNION {page(among) : among \in IF SnapshotsAreConsistent THEN {committed} ELSE SUBSET committed}

Ask(p) ==
    /\ ReadersNumber /\ phase[p] = "idle"
    /\ \E shards \in IF Generation = 1 THEN {Shards} ELSE {{s} : s \in Shards} :
        /\ \E s \in shards : Waiting(s) # {}
        /\ job' = [job EXCEPT ![p] = shards]
        /\ IF SnapshotAfterLock
           THEN UNCHANGED snapshot
           ELSE \E seen \in Seen(shards) : snapshot' = [snapshot EXCEPT ![p] = seen]
    /\ phase' = [phase EXCEPT ![p] = "waiting"]
    /\ UNCHANGED <<writing, rows, backfilling, base, reading>>

Lock(p) ==
    /\ phase[p] = "waiting"
    /\ NumbersUnderLock => \A q \in Procs : phase[q] = "numbering" => job[q] \cap job[p] = {}
    /\ phase' = [phase EXCEPT ![p] = "numbering"]
    /\ base' = [base EXCEPT ![p] = [s \in job[p] |-> last[s]]]
    /\ IF SnapshotAfterLock
       THEN \E seen \in Seen(job[p]) : snapshot' = [snapshot EXCEPT ![p] = seen]
       ELSE UNCHANGED snapshot
    /\ UNCHANGED <<writing, rows, backfilling, job, reading>>

IsBefore(row, other) == IF SortsBySequence THEN row[1] <= other[1] ELSE row[1] >= other[1]
End(p) ==
    /\ phase' = [phase EXCEPT ![p] = "idle"] /\ job' = [job EXCEPT ![p] = {}]
    /\ base' = [base EXCEPT ![p] = None] /\ snapshot' = [snapshot EXCEPT ![p] = {}]

\* The transaction commits, and the lock is free.
Place(p) ==
    /\ phase[p] = "numbering"
    /\ LET of(s) == {row \in snapshot[p] : ShardOf(row[2]) = s}
           place(row, s) == <<base[p][s] + Cardinality({r \in of(s) : IsBefore(r, row)}), row[2]>>
           end(s) == base[p][s] + Cardinality(of(s))
       IN  /\ feed' = [s \in Shards |-> IF s \in job[p] THEN feed[s] \cup {place(row, s) : row \in of(s)} ELSE feed[s]]
           /\ last' = [s \in Shards |-> IF s \in job[p] THEN end(s) ELSE last[s]]
    /\ outbox' = outbox \ snapshot[p]
    /\ End(p)
    /\ UNCHANGED <<writing, drawn, low, backfilling, reading>>

\* The session ends: nothing has got a position, and the lock is free.
Break(p) ==
    /\ phase[p] # "idle"
    /\ End(p)
    /\ UNCHANGED <<writing, rows, backfilling, reading>>

------------------------------------------------------------------------------
(* Consumers, and prune. *)

Read(p, s) ==
    /\ Unread(p, s) # {}
    /\ RefusesPrunedCursors => cursor[p][s] = 0 \/ cursor[p][s] >= low[s]
    /\ LET row == Least(Unread(p, s))
       IN  /\ cursor' = [cursor EXCEPT ![p][s] = row[1]]
           /\ got' = [got EXCEPT ![p][s] = Append(@, row[2])]
    /\ UNCHANGED <<writing, rows, backfilling, numbering, keeps>>

HasRead(p, s, position) == cursor[p][s] >= position \/ (~PruneCountsTheAbsent /\ cursor[p][s] = 0)

Prune(s) ==
    /\ Generation = 2
    /\ LET kept == {row \in feed[s] : row[1] > low[s]}
       IN  /\ kept # {}
           /\ low' = [low EXCEPT ![s] = Least(kept)[1]]
           /\ PruneWaitsForConsumers => \A p \in keeps : HasRead(p, s, low'[s])
    /\ UNCHANGED <<writing, drawn, outbox, feed, last, backfilling, numbering, reading>>

------------------------------------------------------------------------------
(* Backfill: begin_backfill and continue_backfill. *)

OnFeedNow == UNION {EventsIn({row \in feed[s] : row[1] > low[s]}) : s \in Shards}
IsUsed(s) == last[s] > 0 \/ Waiting(s) # {}

LookAtFeed ==
    /\ ~ListsInOneSnapshot /\ Old > 0 /\ list = None /\ onFeed = None
    /\ onFeed' = OnFeedNow
    /\ UNCHANGED <<writing, rows, list, moving, numbering, reading>>

Begin ==
    /\ Old > 0 /\ list = None /\ (ListsInOneSnapshot \/ onFeed # None)
    /\ WritersWaitForBackfill /\ Anyway = 0 => \A x \in Transactions : state[x] # "open"
    /\ LET there == EventsIn(outbox) \cup (IF ListsInOneSnapshot THEN OnFeedNow ELSE onFeed)
           missing == Committed \ there
       IN  /\ missing # {}
           /\ RefusesAfterPrune => \A s \in Shards : low[s] = 0
           /\ RefusesUsedShards /\ Anyway = 0 => \A x \in missing : ~IsUsed(ShardOf(x))
           /\ list' = SelectSeq([i \in 1..(Old + Writers) |-> i], LAMBDA x : x \in missing)
    /\ onFeed' = None
    /\ UNCHANGED <<writing, rows, moving, numbering, reading>>

\* Into the outbox, where it gets a number of the sequence.
PutInOutbox(x) == \E n \in Next_numbers : drawn' = drawn \cup {n} /\ outbox' = outbox \cup {<<n, x>>}

StartMove(p) ==
    /\ list # None /\ moving[p] = None /\ drawn # Numbers
    /\ MovesUnderLock => \A q \in Procs : moving[q] = None
    /\ \E x \in IF MovesInOrder THEN {list[1]} ELSE In(list) :
        /\ moving' = [moving EXCEPT ![p] = x]
        /\ IF MovesRowsWhole THEN UNCHANGED <<drawn, outbox>> ELSE PutInOutbox(x)
    /\ UNCHANGED <<writing, feed, last, low, list, onFeed, numbering, reading>>

\* The list goes with its last row.
FinishMove(p) ==
    /\ moving[p] # None /\ drawn # Numbers
    /\ IF MovesRowsWhole THEN PutInOutbox(moving[p]) ELSE UNCHANGED <<drawn, outbox>>
    /\ LET left == IF list = None THEN <<>> ELSE SelectSeq(list, LAMBDA x : x # moving[p])
       IN  list' = IF left = <<>> THEN None ELSE left
    /\ moving' = [moving EXCEPT ![p] = None]
    /\ UNCHANGED <<writing, feed, last, low, onFeed, numbering, reading>>

\* The process is interrupted. Another one continues.
BreakMove(p) ==
    /\ moving[p] # None
    /\ moving' = [moving EXCEPT ![p] = None]
    /\ UNCHANGED <<writing, rows, list, onFeed, numbering, reading>>

Next ==
    \/ \E x \in Transactions : Insert(x) \/ Commit(x) \/ Abort(x)
    \/ \E s \in Shards : Prune(s)
    \/ LookAtFeed \/ Begin
    \/ \E p \in Procs :
        \/ Ask(p) \/ Lock(p) \/ Place(p) \/ Break(p) \/ StartMove(p) \/ FinishMove(p) \/ BreakMove(p)
        \/ \E s \in Shards : Read(p, s)

Spec == Init /\ [][Next]_vars

\* A session does not break for ever, and a writer ends one way or the other.
FairSpec ==
    /\ Spec
    /\ \A x \in Transactions : WF_vars(Commit(x) \/ Abort(x))
    /\ \A p \in Procs :
        /\ WF_vars(Ask(p)) /\ SF_vars(Lock(p)) /\ SF_vars(Place(p)) /\ SF_vars(StartMove(p)) /\ SF_vars(FinishMove(p))
        /\ \A s \in Shards : WF_vars(Read(p, s))

------------------------------------------------------------------------------

\* What a process has begun with, where it keeps its cursors elsewhere and has begun with what prune has left.
Began(p, s) ==
    IF p \in keeps \/ got[p][s] = <<>> THEN 1 ELSE Least({row \in feed[s] : row[2] = got[p][s][1]})[1]

\* Nothing lost: a consumer has what lies before its cursor, and what was deleted.
G1 == \A p \in Procs, s \in Shards : \A row \in feed[s] :
    \/ row[1] \in Began(p, s)..cursor[p][s]
    \/ row[1] <= low[s] /\ p \in keeps
    => row[2] \in In(got[p][s])

\* Order: what was committed before another transaction began comes before it; old events in the order of the backfill.
G2 == \A p \in Procs, s \in Shards : \A i, j \in 1..Len(got[p][s]) :
    LET x == got[p][s][i]
        y == got[p][s][j]
    IN  i < j /\ (Anyway = 1 => x > Old /\ y > Old) => y \notin before[x]

\* Once.
G3 == \A p \in Procs, s \in Shards : Len(got[p][s]) = Cardinality(In(got[p][s]))

\* Nothing stuck: what is committed, and what a backfill has listed, is read by each consumer.
G4 == \A x \in Transactions, p \in Procs :
    (IF x <= Old THEN list # None /\ x \in In(list) ELSE state[x] = "committed") ~> (x \in In(got[p][ShardOf(x)]))

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
