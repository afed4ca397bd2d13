-------------------------------- MODULE Relay --------------------------------
(* The way of an event from its commit to the topic: the change feed with its leases, which the platform owns; the
   attempts of the relay's processes; the network; and the topic with its duplicate detection window.

   Commit 1 has the first events, all of key "a"; commit 2 has one event of key "b". A process is one worker of a
   host, with one page at a time. Any step may be delayed for ever, which is what a frozen process is.          *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the relay's processes
    InFirst,        \* the number of events in commit 1
    Commits,        \* the number of commits, 1 or 2
    First, Last,    \* the first and the last arrangement of physical partitions: 1 to 4, see below
    Window,         \* the duplicate detection window, in ticks
    MaxTime,        \* ticks
    MaxFaults,      \* steps that lose something: leases, transfers, answers, processes

    \* Safeguards of the relay. Each is TRUE; a run with one taken out is violated.
    WithholdsCheckpoint,    \* relay/core/plan.py: an invocation raises unless each event was accepted
    StopsBehindFailure,     \* relay/servicebus/key_sender.py: nothing of a key is sent behind an event that was not accepted
    SortsCommits,           \* relay/backends/cosmos/source.py: the events of one commit are sorted by their order
    EveryWaitEnds,          \* relay/servicebus/pipelined/lanes.py: a transfer without an answer is given up
    RemembersAccepted,      \* relay/core/evidence.py: the ledger of what this process had accepted
    ComparesOldEvents,      \* relay/core/fence.py: an attempt with an old event compares its page with the leases
    ClearanceExpires,       \* relay/core/fence.py: what was compared is compared again half a window later
    EveryLeaseCounts,       \* relay/backends/cosmos/leases.py: an event is settled once every lease that covers its key has passed it

    \* Assumptions about the service and its operators: verification/spec/README.md. Each is TRUE.
    TopicDetectsDuplicates, \* a message id that came within the window is dropped
    PagesEndWithCommits,    \* a page of changes does not end within a commit
    OwnersCheckpoint,       \* a lease's position is written by its owner only
    OwnersDivide,           \* a lease is divided by its owner, at its position
    NumbersOutliveMerges,   \* a merge leaves the order of the changes of both partitions as it is
    OldLeasesGo,            \* leases do not overlap: one that a split or merge has replaced is gone, and none begins where another one was
    EventsAreImmutable,     \* an event is not replaced under its id
    TransfersEnd,           \* what was written to a connection arrives within half a window, or never
    WindowOutlastsOutage    \* an event that was accepted is checkpointed within half a window, or attempted after that
                            \* only by the process that had it accepted

VARIABLES
    now,        \* the time
    committed,  \* the number of commits
    born,       \* commit -> the time of its commit
    feed,       \* the change feed: events, in the order of commits, those of one commit in any order
    version,    \* event -> the version of its document
    layout,     \* the arrangement of physical partitions
    leases,     \* the ranges that have a lease
    owner,      \* range -> the process that owns its lease, or None
    position,   \* range -> the number of changes that its lease has passed
    settled,    \* the events that a checkpoint has passed, whatever becomes of it
    range,      \* process -> the range of its page, None between pages
    begin, end, \* process -> its page: the changes after `begin`, up to `end`
    cleared,    \* process -> when it compared its page, None before it has
    passed,     \* process -> the events of its page that a lease had passed then
    done,       \* process -> the events that were accepted in this attempt
    failed,     \* process -> the keys that this attempt has given up
    ledger,     \* process -> the events that were accepted from it since its start
    sent,       \* process -> key -> the transfer that it waits for, or None
    network,    \* transfers that are on their way
    topic,      \* the events that subscribers get
    content,    \* event -> the version that subscribers get first, 0 before
    seen,       \* event -> when the topic last accepted it, None before
    faults      \* the number of faults so far

platform == <<layout, leases, owner, position, settled>>
attempt == <<range, begin, end, cleared, passed, done, failed, sent>>
broker == <<topic, content, seen>>
writer == <<committed, born, feed, version>>
vars == <<now, writer, platform, attempt, ledger, network, broker, faults>>

Events == 1..(InFirst + Commits - 1)
Keys == {"a", "b"}
KeyOf(e) == IF e > InFirst THEN "b" ELSE "a"
CommitOf(e) == IF e > InFirst THEN 2 ELSE 1
EventsOf(c) == {e \in Events : CommitOf(e) = c}
\* In the place of an event that was replaced, and so has moved to the end of the feed.
Gap == 0

(* The arrangements of physical partitions, each of which replaces the one before:
   1 one with both keys; 2 split into one for each key; 3 merged into one; 4 split again.
   A lease is named after its partition, "ab", "a" or "b". Since a merge it is one of a range, "range a", which
   stays what it is wherever its range is held (PartitionSynchronizerCore.HandlePartitionGoneAsync).           *)
Ranges == {"ab", "a", "b", "range ab", "range a", "range b"}
KeysOf(r) == CASE r \in {"ab", "range ab"} -> Keys [] r \in {"a", "range a"} -> {"a"} [] OTHER -> {"b"}
IsRead(r) == CASE r = "ab" -> layout = 1 [] r \in {"a", "b"} -> layout = 2
               [] r = "range ab" -> layout = 3 [] OTHER -> TRUE
Parts(r) == CASE r = "ab" /\ layout = 2 -> {"a", "b"} [] r = "ab" /\ layout = 3 -> {"range ab"}
              [] r = "a" /\ layout >= 3 -> {"range a"} [] r = "b" /\ layout >= 3 -> {"range b"}
              [] r = "range ab" /\ layout = 4 -> {"range a", "range b"} [] OTHER -> {}

Max(x, y) == IF x > y THEN x ELSE y
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Index(e) == CHOOSE i \in 1..Len(feed) : feed[i] = e
IsOld(since) == 2 * (now - since) >= Window
BornAt(e) == born[CommitOf(e)]

Init ==
    /\ now = 0
    /\ committed = 0 /\ born = <<0, 0>> /\ feed = <<>> /\ version = [e \in Events |-> 1]
    /\ layout = First
    /\ leases \in (IF layout = 1 THEN {{"ab"}} ELSE {{"a", "b"}})
        \cup (IF OldLeasesGo THEN {} ELSE IF layout = 1 THEN {{"ab", "range a"}} ELSE {{"ab", "a", "b"}})
    \* After a split and a merge that nobody noticed, a partition's lease begins where that of key "b" was, and the
    \* events of commit 1 come through that of key "a" alone.
    /\ owner = [r \in Ranges |-> None] /\ settled = {}
    /\ position = [r \in Ranges |-> IF r = "ab" /\ "range a" \in leases THEN InFirst ELSE 0]
    /\ range = [p \in Procs |-> None] /\ begin = [p \in Procs |-> 0] /\ end = [p \in Procs |-> 0]
    /\ cleared = [p \in Procs |-> None] /\ passed = [p \in Procs |-> {}]
    /\ done = [p \in Procs |-> {}] /\ failed = [p \in Procs |-> {}]
    /\ ledger = [p \in Procs |-> {}]
    /\ sent = [p \in Procs |-> [k \in Keys |-> None]]
    /\ network = {}
    /\ topic = <<>> /\ content = [e \in Events |-> 0] /\ seen = [e \in Events |-> None]
    /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1
NoFault == UNCHANGED faults

------------------------------------------------------------------------------
(* The writer: a commit comes into the feed whole, its events in any order. *)

Commit ==
    /\ committed < Commits
    /\ committed' = committed + 1
    /\ born' = [born EXCEPT ![committed'] = now]
    /\ \E order \in [1..Cardinality(EventsOf(committed')) -> EventsOf(committed')] :
        /\ In(order) = EventsOf(committed')
        /\ feed' = feed \o order
    /\ UNCHANGED <<now, version, platform, attempt, ledger, network, broker>> /\ NoFault

\* The change feed has the latest version of a document only, and it is a change of its own.
Replace(e) ==
    /\ ~EventsAreImmutable /\ e \in In(feed) /\ version[e] = 1
    /\ \A p \in Procs : range[p] = None
    /\ version' = [version EXCEPT ![e] = 2]
    /\ feed' = Append([feed EXCEPT ![Index(e)] = Gap], e)
    /\ UNCHANGED <<now, committed, born, platform, attempt, ledger, network, broker>> /\ NoFault

------------------------------------------------------------------------------
(* The platform: leases, and the physical partitions below them. *)

Covering(e) == {r \in leases : KeyOf(e) \in KeysOf(r)}
HasPassed(e) == \A r \in Covering(e) : Index(e) <= position[r]
IsSettled(e) == IF EveryLeaseCounts THEN HasPassed(e) ELSE \E r \in Covering(e) : Index(e) <= position[r]

\* Accepted, never passed by a checkpoint, and old: only the ledger of a process keeps it from being published twice.
Overdue(e) == e \in In(topic) \ settled /\ IsOld(seen[e])
Keeps(p) == WindowOutlastsOutage /\ \E e \in ledger[p] : Overdue(e)

\* A process takes a lease that nobody has when it needs it: what it does before is nothing to anybody.
CanHave(p, r) == r \in leases /\ owner[r] \in {p, None}

\* It has expired, or another host has stolen it to balance the leases. The old owner does not notice.
LoseLease(r) ==
    /\ owner[r] # None /\ ~Keeps(owner[r])
    /\ owner' = [owner EXCEPT ![r] = None]
    /\ UNCHANGED <<now, writer, layout, leases, position, settled, attempt, ledger, network, broker>> /\ Fault

\* Without the assumption, the merged partition numbers the changes anew; those of one key keep their order.
Orders ==
    IF NumbersOutliveMerges THEN {feed}
    ELSE {new \in [1..Len(feed) -> In(feed)] : \A k \in Keys :
        SelectSeq(new, LAMBDA e : KeyOf(e) = k) = SelectSeq(feed, LAMBDA e : KeyOf(e) = k)}

\* Partitions are split or merged.
Reshape ==
    /\ layout < Last
    /\ layout' = layout + 1
    /\ OldLeasesGo /\ layout' = 4 => leases \cap {"ab", "range ab"} = {}
    /\ IF layout' = 3 /\ ~NumbersOutliveMerges
       THEN (\A p \in Procs : range[p] = None) /\ feed' \in Orders
       ELSE UNCHANGED feed
    /\ UNCHANGED <<now, committed, born, version, leases, owner, position, settled, attempt, ledger, network, broker>> /\ Fault

\* A lease whose partition is gone is replaced by those of its parts that are missing, at its position. It may stay
\* beside them (azure-cosmos-dotnet-v3, issue 5604).
Divide(p, r, stays) ==
    /\ r \in leases /\ Parts(r) # {} /\ range[p] = None
    /\ OwnersDivide => CanHave(p, r)
    /\ LET missing == Parts(r) \ leases
       IN  /\ leases' = (leases \cup missing) \ (IF stays THEN {} ELSE {r})
           /\ \E from \in IF OwnersDivide THEN {position[r]} ELSE 0..position[r] :
               position' = [x \in Ranges |->
                    IF x \in missing THEN from ELSE IF x = r /\ ~stays THEN 0 ELSE position[x]]
    /\ owner' = [owner EXCEPT ![r] = None]
    /\ UNCHANGED <<now, writer, layout, settled, attempt, ledger, network, broker>>
    /\ IF stays THEN Fault ELSE NoFault

\* The page is delivered to the function: a first attempt begins.
Read(p) ==
    /\ range[p] = None
    /\ \E r \in leases, upto \in 1..Len(feed) :
        /\ IsRead(r) /\ CanHave(p, r) /\ upto > position[r] /\ feed[upto] # Gap /\ KeyOf(feed[upto]) \in KeysOf(r)
        /\ owner' = [owner EXCEPT ![r] = p]
        /\ IF PagesEndWithCommits /\ upto < Len(feed)
           THEN CommitOf(feed[upto]) # CommitOf(feed[upto + 1]) ELSE TRUE
        /\ range' = [range EXCEPT ![p] = r]
        /\ begin' = [begin EXCEPT ![p] = position[r]]
        /\ end' = [end EXCEPT ![p] = upto]
        /\ WindowOutlastsOutage => \A i \in (position[r] + 1)..upto :
            KeyOf(feed[i]) \in KeysOf(r) /\ feed[i] # Gap /\ Overdue(feed[i]) => feed[i] \in ledger[p]
    /\ UNCHANGED <<now, writer, layout, leases, position, settled>>
    /\ UNCHANGED <<cleared, passed, done, failed, sent, ledger, network, broker>>
    /\ NoFault

------------------------------------------------------------------------------
(* An attempt of a process at its page: relay/core/pipeline.py. *)

Page(p) ==
    IF range[p] = None THEN {}
    ELSE {feed[i] : i \in {j \in (begin[p] + 1)..end[p] : KeyOf(feed[j]) \in KeysOf(range[p])}} \ {Gap}
Known(p) == done[p] \cup passed[p] \cup (IF RemembersAccepted THEN ledger[p] ELSE {})
Open(p, k) == {e \in Page(p) : KeyOf(e) = k} \ Known(p)
IsBefore(e, f) == IF SortsCommits THEN e < f ELSE Index(e) < Index(f)
Following(p, k) == CHOOSE e \in Open(p, k) : \A f \in Open(p, k) \ {e} : IsBefore(e, f)
IsAttempting(p) == range[p] # None /\ cleared[p] # None
IsFree(p, k) == sent[p][k] = None /\ k \notin failed[p]
IsStale(p, e) == ComparesOldEvents /\ ClearanceExpires /\ IsOld(Max(cleared[p], BornAt(e)))

\* A page with an old event is compared with the leases; without one, the time of each event counts from its commit.
Compare(p) ==
    /\ range[p] # None /\ cleared[p] = None
    /\ IF ComparesOldEvents /\ \E e \in Page(p) : IsOld(BornAt(e))
       THEN /\ cleared' = [cleared EXCEPT ![p] = now]
            /\ passed' = [passed EXCEPT ![p] = {e \in Page(p) : IsSettled(e)}]
       ELSE cleared' = [cleared EXCEPT ![p] = 0] /\ UNCHANGED passed
    /\ UNCHANGED <<now, writer, platform, range, begin, end, done, failed, sent, ledger, network, broker>> /\ NoFault

\* One transfer of a key at a time: relay/servicebus/key_sender.py.
Send(p, k) ==
    /\ IsAttempting(p) /\ IsFree(p, k) /\ Open(p, k) # {}
    /\ LET e == Following(p, k)
           transfer == [event |-> e, version |-> version[e], from |-> p, at |-> now]
       IN  IF IsStale(p, e)
           THEN failed' = [failed EXCEPT ![p] = @ \cup {k}] /\ UNCHANGED <<sent, network>>
           ELSE /\ sent' = [sent EXCEPT ![p][k] = transfer]
                /\ network' = network \cup {transfer}
                /\ UNCHANGED failed
    /\ UNCHANGED <<now, writer, platform, range, begin, end, cleared, passed, done, ledger, broker>> /\ NoFault

\* No answer in time: the transfer is lost, or it is late and may still arrive.
GiveUp(p, k) ==
    /\ EveryWaitEnds
    /\ range[p] # None /\ sent[p][k] # None
    /\ sent' = [sent EXCEPT ![p][k] = None]
    /\ IF StopsBehindFailure
       THEN failed' = [failed EXCEPT ![p] = @ \cup {k}] /\ UNCHANGED done
       ELSE done' = [done EXCEPT ![p] = @ \cup {sent[p][k].event}] /\ failed' = [failed EXCEPT ![p] = @ \cup {"any"}]
    /\ UNCHANGED <<now, writer, platform, range, begin, end, cleared, passed, ledger, network, broker>>
    /\ IF sent[p][k] \in network THEN Fault ELSE NoFault

IsOver(p) == IsAttempting(p) /\ \A k \in Keys : sent[p][k] = None /\ (k \in failed[p] \/ Open(p, k) = {})
Succeeded(p) == failed[p] = {} \/ ~WithholdsCheckpoint

\* The invocation raises, and the retry policy calls the function again with the same page.
Retry(p) ==
    /\ IsOver(p) /\ ~Succeeded(p)
    /\ cleared' = [cleared EXCEPT ![p] = None] /\ passed' = [passed EXCEPT ![p] = {}]
    /\ done' = [done EXCEPT ![p] = {}] /\ failed' = [failed EXCEPT ![p] = {}]
    /\ UNCHANGED <<now, writer, platform, range, begin, end, sent, ledger, network, broker>> /\ NoFault

Forget(p) ==
    /\ range' = [range EXCEPT ![p] = None] /\ begin' = [begin EXCEPT ![p] = 0] /\ end' = [end EXCEPT ![p] = 0]
    /\ cleared' = [cleared EXCEPT ![p] = None] /\ passed' = [passed EXCEPT ![p] = {}]
    /\ done' = [done EXCEPT ![p] = {}] /\ failed' = [failed EXCEPT ![p] = {}]
    /\ sent' = [sent EXCEPT ![p] = [k \in Keys |-> None]]

\* The invocation succeeds, and the host writes the position, unless the lease is no longer its own.
Checkpoint(p) ==
    /\ IsOver(p) /\ Succeeded(p)
    /\ position' = [position EXCEPT ![range[p]] =
        IF range[p] \in leases /\ (owner[range[p]] = p \/ ~OwnersCheckpoint) THEN end[p] ELSE @]
    /\ settled' = IF position' = position THEN settled ELSE settled \cup Page(p)
    /\ Forget(p)
    /\ UNCHANGED <<now, writer, layout, leases, owner, ledger, network, broker>> /\ NoFault

\* The process is killed. Its lease expires.
Kill(p) ==
    /\ ~Keeps(p)
    /\ Forget(p)
    /\ ledger' = [ledger EXCEPT ![p] = {}]
    /\ owner' = [r \in Ranges |-> IF owner[r] = p THEN None ELSE owner[r]]
    /\ UNCHANGED <<now, writer, layout, leases, position, settled, network, broker>> /\ Fault

------------------------------------------------------------------------------
(* The network and the topic. *)

IsAwaited(transfer) == sent[transfer.from][KeyOf(transfer.event)] = transfer

Arrive(transfer) ==
    LET e == transfer.event
        p == transfer.from
        isRepeat == TopicDetectsDuplicates /\ seen[e] # None /\ now - seen[e] < Window
    IN  /\ network' = network \ {transfer}
        /\ IF isRepeat
           THEN UNCHANGED broker
           ELSE /\ topic' = Append(topic, e) /\ seen' = [seen EXCEPT ![e] = now]
                /\ content' = [content EXCEPT ![e] = IF @ = 0 THEN transfer.version ELSE @]
        /\ IF IsAwaited(transfer)
           THEN /\ sent' = [sent EXCEPT ![p][KeyOf(e)] = None]
                /\ done' = [done EXCEPT ![p] = @ \cup {e}]
                /\ ledger' = [ledger EXCEPT ![p] = @ \cup {e}]
           ELSE UNCHANGED <<sent, done, ledger>>
        /\ UNCHANGED <<now, writer, platform, range, begin, end, cleared, passed, failed>> /\ NoFault

Lose(transfer) ==
    /\ network' = network \ {transfer}
    /\ UNCHANGED <<now, writer, platform, attempt, ledger, broker>> /\ Fault

Tick ==
    /\ now < MaxTime
    /\ now' = now + 1
    /\ network' = IF TransfersEnd THEN {transfer \in network : 2 * (now' - transfer.at) < Window} ELSE network
    /\ WindowOutlastsOutage => \A e \in In(topic) :
        \/ e \in settled \/ 2 * (now' - seen[e]) < Window
        \/ \E r \in Covering(e) : owner[r] # None /\ range[owner[r]] = r /\ e \in ledger[owner[r]]
            /\ \A p \in Procs \ {owner[r]} : e \notin Page(p)
    /\ UNCHANGED <<writer, platform, attempt, ledger, broker>> /\ NoFault

------------------------------------------------------------------------------

Next ==
    \/ Commit \/ Reshape \/ Tick
    \/ \E e \in Events : Replace(e)
    \/ \E r \in leases : LoseLease(r)
    \/ \E transfer \in network : Arrive(transfer) \/ Lose(transfer)
    \/ \E p \in Procs :
        \/ Read(p) \/ Compare(p) \/ Retry(p) \/ Checkpoint(p) \/ Kill(p)
        \/ \E r \in Ranges, stays \in BOOLEAN : Divide(p, r, stays)
        \/ \E k \in Keys : Send(p, k) \/ GiveUp(p, k)

Steps ==
    /\ WF_vars(Commit)
    /\ \A p \in Procs :
        /\ WF_vars(Read(p)) /\ WF_vars(Compare(p))
        /\ WF_vars(\E r \in Ranges : Divide(p, r, FALSE))
        /\ WF_vars(Retry(p)) /\ WF_vars(Checkpoint(p))
        /\ \A k \in Keys : WF_vars(Send(p, k)) /\ WF_vars(GiveUp(p, k) /\ NoFault)
    /\ WF_vars(\E transfer \in network : Arrive(transfer))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Steps

------------------------------------------------------------------------------
(* The guarantees. *)

\* Nothing lost: what every lease of a key has passed is in the topic.
G1 == \A e \in In(feed) \ {Gap} : HasPassed(e) => e \in In(topic)

\* Order within a key: before an event's first copy, each of its predecessors came.
G2 == \A i \in 1..Len(topic) : \A e \in Events :
    e < topic[i] /\ KeyOf(e) = KeyOf(topic[i]) => \E j \in 1..(i - 1) : topic[j] = e

\* Once.
G3 == Len(topic) = Cardinality(In(topic))

\* Nothing altered: when every lease of a key has passed an event, subscribers have what its document says.
G5 == \A e \in In(feed) \ {Gap} : HasPassed(e) => content[e] = version[e]

\* Nothing stuck: each event is published, and every lease of its key has passed it.
G4 == <>(\A e \in Events : e \in In(topic) /\ e \in In(feed) /\ HasPassed(e))

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
