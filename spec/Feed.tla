--------------------------------- MODULE Feed ---------------------------------
(* One shard of an SQL feed. Writers insert events into the outbox table; each draws a number of the table's sequence
   then, and commits later, in any order, or never. The first reader of committed rows gives them positions and moves
   them to the feed. Consumers follow the positions. Any step may be delayed for ever.                          *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the processes that read, each with a cursor of its own
    Writers,        \* the number of transactions, of one event each

    \* Safeguards: changefeed/postgresql/migrations and changefeed/sqlserver/migrations. Each is TRUE.
    ReadersNumber,          \* positions are given to committed rows, by readers: a writer's own number is none
    NumbersUnderLock,       \* one reader at a time gives positions
    SnapshotAfterLock,      \* what is committed is looked up after the lock was got: READ COMMITTED, a new statement
    SortsBySequence,        \* rows of one snapshot get positions in the order of their sequence numbers
    PruneWaitsForConsumers, \* changefeed/retention.py: no row is deleted that a consumer has not read

    \* Assumptions. Each is TRUE.
    SequenceHasNoCache,     \* sequence numbers follow time: reads refuse a sequence with a cache
    SnapshotsAreConsistent  \* a snapshot that has a transaction has all that were committed before it began

VARIABLES
    state,      \* transaction -> "new", "open", "committed" or "gone"
    number,     \* transaction -> its sequence number, None before it has one
    before,     \* transaction -> those that were committed when it began
    position,   \* transaction -> its position in the feed, None
    pruned,     \* transactions whose row was deleted from the feed
    phase,      \* process -> "idle", "waiting" or "numbering"
    base,       \* process -> the last position when it took its snapshot
    snapshot,   \* process -> the committed rows without a position that it saw, None before
    cursor,     \* process -> the position that it has read up to
    got         \* process -> the events that it has read, in order

writing == <<state, number, before>>
numbering == <<phase, base, snapshot>>
vars == <<writing, position, pruned, numbering, cursor, got>>

Transactions == 1..Writers
Numbers == 1..Writers
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Committed == {x \in Transactions : state[x] = "committed"}
Placed == {x \in Transactions : position[x] # None}
Last == Cardinality(Placed)
Used == {number[x] : x \in {y \in Transactions : number[y] # None}}

Init ==
    /\ state = [x \in Transactions |-> "new"] /\ number = [x \in Transactions |-> None]
    /\ before = [x \in Transactions |-> {}]
    /\ position = [x \in Transactions |-> None] /\ pruned = {}
    /\ phase = [p \in Procs |-> "idle"] /\ base = [p \in Procs |-> 0] /\ snapshot = [p \in Procs |-> None]
    /\ cursor = [p \in Procs |-> 0] /\ got = [p \in Procs |-> <<>>]

------------------------------------------------------------------------------
(* Writers. *)

Insert(x) ==
    /\ state[x] = "new"
    /\ \A y \in 1..(x - 1) : state[y] # "new"
    /\ state' = [state EXCEPT ![x] = "open"]
    /\ \E n \in Numbers \ Used :
        /\ SequenceHasNoCache => \A m \in Numbers \ Used : n <= m
        /\ number' = [number EXCEPT ![x] = n]
    /\ before' = [before EXCEPT ![x] = Committed]
    /\ UNCHANGED <<position, pruned, numbering, cursor, got>>

Commit(x) ==
    /\ state[x] = "open"
    /\ state' = [state EXCEPT ![x] = "committed"]
    /\ position' = IF ReadersNumber THEN position ELSE [position EXCEPT ![x] = number[x]]
    /\ UNCHANGED <<number, before, pruned, numbering, cursor, got>>

\* Rolled back, or its session was killed. The number is used up.
Abort(x) ==
    /\ state[x] = "open"
    /\ state' = [state EXCEPT ![x] = "gone"]
    /\ UNCHANGED <<number, before, position, pruned, numbering, cursor, got>>

------------------------------------------------------------------------------
(* read_feed: the lock, the snapshot, the positions, in one transaction. *)

Visible ==
    IF SnapshotsAreConsistent THEN {Committed \ Placed}
    ELSE SUBSET (Committed \ Placed)

Ask(p) ==
    /\ ReadersNumber /\ phase[p] = "idle" /\ Committed \ Placed # {}
    /\ phase' = [phase EXCEPT ![p] = "waiting"]
    /\ IF SnapshotAfterLock
       THEN UNCHANGED <<base, snapshot>>
       ELSE \E rows \in Visible : snapshot' = [snapshot EXCEPT ![p] = rows] /\ UNCHANGED base
    /\ UNCHANGED <<writing, position, pruned, cursor, got>>

Lock(p) ==
    /\ phase[p] = "waiting"
    /\ NumbersUnderLock => \A q \in Procs : phase[q] # "numbering"
    /\ phase' = [phase EXCEPT ![p] = "numbering"]
    /\ base' = [base EXCEPT ![p] = Last]
    /\ IF SnapshotAfterLock
       THEN \E rows \in Visible : snapshot' = [snapshot EXCEPT ![p] = rows]
       ELSE UNCHANGED snapshot
    /\ UNCHANGED <<writing, position, pruned, cursor, got>>

IsBefore(x, y) == IF SortsBySequence THEN number[x] < number[y] ELSE number[x] > number[y]

\* The transaction commits, and the lock is free.
Place(p) ==
    /\ phase[p] = "numbering"
    /\ LET rows == snapshot[p]
       IN  position' = [x \in Transactions |->
            IF x \in rows THEN base[p] + Cardinality({y \in rows : y = x \/ IsBefore(y, x)}) ELSE position[x]]
    /\ phase' = [phase EXCEPT ![p] = "idle"] /\ base' = [base EXCEPT ![p] = 0]
    /\ snapshot' = [snapshot EXCEPT ![p] = None]
    /\ UNCHANGED <<writing, pruned, cursor, got>>

\* The session ends: nothing was placed, and the lock is free.
Break(p) ==
    /\ phase[p] # "idle"
    /\ phase' = [phase EXCEPT ![p] = "idle"] /\ base' = [base EXCEPT ![p] = 0]
    /\ snapshot' = [snapshot EXCEPT ![p] = None]
    /\ UNCHANGED <<writing, position, pruned, cursor, got>>

------------------------------------------------------------------------------
(* Consumers, and prune. *)

Behind(p) == {x \in Placed \ pruned : position[x] > cursor[p]}

Read(p) ==
    /\ \E x \in Behind(p) :
        /\ \A y \in Behind(p) : position[x] <= position[y]
        /\ cursor' = [cursor EXCEPT ![p] = position[x]]
        /\ got' = [got EXCEPT ![p] = Append(@, x)]
    /\ UNCHANGED <<writing, position, pruned, numbering>>

Prune(x) ==
    /\ x \in Placed \ pruned
    /\ PruneWaitsForConsumers => \A p \in Procs : position[x] <= cursor[p]
    /\ pruned' = pruned \cup {x}
    /\ UNCHANGED <<writing, position, numbering, cursor, got>>

Next ==
    \/ \E x \in Transactions : Insert(x) \/ Commit(x) \/ Abort(x) \/ Prune(x)
    \/ \E p \in Procs : Ask(p) \/ Lock(p) \/ Place(p) \/ Break(p) \/ Read(p)

Spec == Init /\ [][Next]_vars

\* A session does not break for ever, and a writer ends one way or the other.
FairSpec ==
    /\ Spec
    /\ \A x \in Transactions : WF_vars(Commit(x) \/ Abort(x))
    /\ \A p \in Procs : WF_vars(Ask(p)) /\ SF_vars(Lock(p)) /\ SF_vars(Place(p)) /\ WF_vars(Read(p))

------------------------------------------------------------------------------

\* Nothing lost: a consumer has what lies before its cursor, and what was deleted.
G1 == \A p \in Procs, x \in Committed :
    (position[x] # None /\ position[x] <= cursor[p]) \/ x \in pruned => x \in In(got[p])

\* Order: what was committed before another transaction began comes before it.
G2 == \A p \in Procs : \A i, j \in 1..Len(got[p]) : i < j => got[p][j] \notin before[got[p][i]]

\* Once.
G3 == \A p \in Procs : Len(got[p]) = Cardinality(In(got[p]))

\* Nothing stuck: what is committed is read by each consumer.
G4 == \A x \in Transactions, p \in Procs : (state[x] = "committed") ~> (x \in In(got[p]))

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
