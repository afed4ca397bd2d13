-------------------------------- MODULE Shares --------------------------------
(* Which process reads which shard of an SQL feed. Each decides by itself in its rounds, from the claims that all of
   them see: `decide` and Worker._round in relay/backends/sql/worker.py. What a claim is worth is in Claims.tla.         *)
EXTENDS Naturals, FiniteSets

CONSTANTS
    None,       \* no value
    Procs,      \* the relay's processes, each of which is started once
    Count,      \* the number of shards
    MaxFaults,  \* processes that end, and claims that are taken for dead while their owner lives

    \* Safeguards: relay/backends/sql/worker.py. Each is TRUE; a run with one taken out is violated.
    TakesTheDead,       \* the shards of an owner that has ended are taken
    CountsWhoAsks,      \* a process that has asked for a shard counts as one to share with
    AsksWhoHasMore,     \* a process asks for a shard only where another one has more than its share
    DeclinesWhatItKeeps \* an owner takes back the request for a shard that it keeps

VARIABLES
    state,      \* process -> "new", "runs" or "ended"
    owner,      \* shard -> its owner, None
    wanted,     \* shard -> the process that asks for it, None
    given,      \* shard -> the process that gets it when the page under way is done, None
    faults

vars == <<state, owner, wanted, given, faults>>

Shards == 1..Count
Max(x, y) == IF x > y THEN x ELSE y
Min(x, y) == IF x < y THEN x ELSE y
First(n, shards) == {s \in shards : Cardinality({r \in shards : r <= s}) <= n}
Runs == {p \in Procs : state[p] = "runs"}

Init ==
    /\ state = [p \in Procs |-> IF p = CHOOSE q \in Procs : TRUE THEN "runs" ELSE "new"]
    /\ owner = [s \in Shards |-> None] /\ wanted = [s \in Shards |-> None] /\ given = [s \in Shards |-> None]
    /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1
NoFault == UNCHANGED faults

\* The decision of process p that takes the owners of `dead` for ended: what it takes, gives, declines, and asks for.
Decision(p, dead) ==
    LET alive == {s \in Shards : owner[s] # None /\ s \notin dead}
        free == Shards \ alive
        held == [q \in Procs |-> Cardinality({s \in alive : owner[s] = q})]
        asking == IF CountsWhoAsks THEN {wanted[s] : s \in alive} \ {None} ELSE {}
        members == Cardinality({owner[s] : s \in alive} \cup {p} \cup asking)
        atMost == (Count + members - 1) \div members
        atLeast == Count \div members
        take == IF held[p] < atMost THEN First(atMost - held[p], free) ELSE {}
        requests == {s \in alive : owner[s] = p /\ wanted[s] # None}
        spare == held[p] - Min(held[p], Max(atLeast, 1))
        give == First(spare, requests)
        enough == IF held[p] < atLeast THEN atLeast ELSE atMost
        richer == {s \in alive : wanted[s] = None /\ owner[s] # p /\ (AsksWhoHasMore => held[owner[s]] > enough)}
        asks == give = {} /\ free = {} /\ held[p] < atMost /\ ~\E s \in alive : wanted[s] = p
        richest == {s \in richer : \A r \in richer : held[owner[r]] <= held[owner[s]]}
    IN  IF take # {} THEN [take |-> take, give |-> {}, decline |-> {}, ask |-> {}]
        ELSE [take |-> {}, give |-> give,
              decline |-> IF DeclinesWhatItKeeps THEN requests \ give ELSE {},
              ask |-> IF asks THEN First(1, richest) ELSE {}]

Carry(p, d) ==
    /\ owner' = [s \in Shards |-> IF s \in d.take THEN p ELSE owner[s]]
    /\ given' = [s \in Shards |->
        IF s \in d.give THEN wanted[s] ELSE IF s \in d.take THEN None ELSE given[s]]
    /\ wanted' = [s \in Shards |->
        IF s \in d.take \cup d.decline THEN None ELSE IF s \in d.ask THEN p ELSE wanted[s]]
    /\ UNCHANGED state

Ended == IF TakesTheDead THEN {s \in Shards : owner[s] # None /\ state[owner[s]] = "ended"} ELSE {}

\* Not every owner that has ended is known to have: the observer has seen its claims for too short a time.
Round(p, dead) == p \in Runs /\ dead \subseteq Ended /\ Carry(p, Decision(p, dead)) /\ NoFault

\* An owner that runs was frozen for as long as its claim lasts.
Mistake(p, s) ==
    /\ p \in Runs /\ owner[s] \in Runs \ {p}
    /\ Carry(p, Decision(p, {s})) /\ Fault

\* Shard.stop and Consumer.release.
Release(s) ==
    /\ given[s] # None /\ owner[s] \in Runs
    /\ owner' = [owner EXCEPT ![s] = given[s]]
    /\ wanted' = [wanted EXCEPT ![s] = None] /\ given' = [given EXCEPT ![s] = None]
    /\ UNCHANGED state /\ NoFault

Start(p) ==
    /\ state[p] = "new"
    /\ state' = [state EXCEPT ![p] = "runs"]
    /\ UNCHANGED <<owner, wanted, given>> /\ NoFault

\* Killed: its claims and its requests stay.
Kill(p) ==
    /\ p \in Runs /\ Cardinality(Runs) > 1
    /\ state' = [state EXCEPT ![p] = "ended"]
    /\ given' = [s \in Shards |-> IF owner[s] = p THEN None ELSE given[s]]
    /\ UNCHANGED <<owner, wanted>> /\ Fault

Next ==
    \/ \E s \in Shards : Release(s)
    \/ \E p \in Procs :
        \/ Start(p) \/ Kill(p)
        \/ \E dead \in SUBSET Shards : Round(p, dead)
        \/ \E s \in Shards : Mistake(p, s)

Spec == Init /\ [][Next]_vars

FairSpec ==
    /\ Spec
    /\ \A s \in Shards : WF_vars(Release(s))
    /\ \A p \in Procs : WF_vars(Round(p, Ended))

------------------------------------------------------------------------------

IsShared ==
    /\ \A s \in Shards : owner[s] \in Runs
    /\ \A p, q \in Runs :
        Cardinality({s \in Shards : owner[s] = p}) <= Cardinality({s \in Shards : owner[s] = q}) + 1

\* Nothing stuck: in the end each shard has an owner that runs and keeps it, and no two differ by more than one shard.
G4 == <>[]IsShared /\ <>[][UNCHANGED owner]_vars
==============================================================================
