-------------------------------- MODULE Claims --------------------------------
(* The claim of a shard of an SQL feed: a row that is changed by compare-and-set. Its owner publishes the events
   behind the cursor, in order, and stores the cursor. An observer takes a claim whose row has not changed for a
   while on its own clock. Any step may be delayed for ever, which is what a frozen process is.                *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the relay's processes
    Commits,        \* the number of events in the feed, all of one key
    Window,         \* the duplicate detection window, in ticks
    MaxTime,        \* ticks
    MaxFaults,      \* steps that lose something: renewals, answers, processes, a tick of a clock

    \* Safeguards. Each is TRUE; a run with one taken out is violated.
    StoresUnderItsEpoch,    \* changefeed/claims.py: the cursor is stored where the row has the epoch of the claim
    TakingRaisesEpoch,      \* changefeed/claims.py: whoever takes a claim raises its epoch
    SendsWhileItHolds,      \* relay/sql/source.py: nothing is sent once the claim was not renewed in time
    SendsInOrder,           \* relay/servicebus/turn.py: nothing is sent ahead of an event that was not accepted
    StoresWhatWasAccepted,  \* relay/sql/shard.py: the cursor is stored after its page was accepted

    \* Assumptions. Each is TRUE.
    TopicDetectsDuplicates, \* a message id that came within the window is dropped
    ClocksRunAlike,         \* a second is as long for each process, suspended time included
    WindowOutlastsOutage    \* an event that was accepted is behind the cursor before the window has passed

VARIABLES
    now,        \* the time
    behind,     \* process -> how many ticks its clock has missed
    row,        \* the claim: owner, epoch, renewals, cursor
    epoch,      \* process -> the epoch of the claim that it has, None without one
    renewed,    \* process -> when it renewed the claim last, on its own clock
    next,       \* process -> the event that it publishes next
    watched,    \* process -> the version of the row that it saw last
    since,      \* process -> when it first saw that version, on its own clock
    sent,       \* process -> the event that is on its way, None
    topic, seen, faults

claims == <<row, epoch, renewed, next>>
watching == <<watched, since>>
broker == <<topic, seen>>
vars == <<now, behind, claims, watching, sent, broker, faults>>

Events == 1..Commits
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Clock(p) == now - behind[p]
Version == <<row.epoch, row.renewals>>
\* An owner stops at 80 % of the time after which others may take the claim.
Claim == 2
Holds(p) == epoch[p] # None /\ Clock(p) - renewed[p] < Claim

Init ==
    /\ now = 0 /\ behind = [p \in Procs |-> 0]
    /\ row = [owner |-> None, epoch |-> 0, renewals |-> 0, cursor |-> 0]
    /\ epoch = [p \in Procs |-> None] /\ renewed = [p \in Procs |-> 0] /\ next = [p \in Procs |-> 1]
    /\ watched = [p \in Procs |-> None] /\ since = [p \in Procs |-> 0]
    /\ sent = [p \in Procs |-> None]
    /\ topic = <<>> /\ seen = [e \in Events |-> None]
    /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1
NoFault == UNCHANGED faults

\* Consumer.existing, by each process now and then.
Watch(p) ==
    /\ epoch[p] = None /\ watched[p] # Version
    /\ watched' = [watched EXCEPT ![p] = Version] /\ since' = [since EXCEPT ![p] = Clock(p)]
    /\ UNCHANGED <<now, behind, claims, sent, broker>> /\ NoFault

\* Consumer.take: compare-and-set on the version.
Take(p) ==
    /\ epoch[p] = None /\ watched[p] = Version
    /\ row.owner = None \/ Clock(p) - since[p] >= Claim
    /\ row' = [row EXCEPT !.owner = p, !.renewals = @ + 1, !.epoch = IF TakingRaisesEpoch THEN @ + 1 ELSE @]
    /\ epoch' = [epoch EXCEPT ![p] = row'.epoch]
    /\ renewed' = [renewed EXCEPT ![p] = Clock(p)]
    /\ next' = [next EXCEPT ![p] = row.cursor + 1]
    /\ UNCHANGED <<now, behind, watching, sent, broker>> /\ NoFault

\* Consumer.renew. An answer that is lost renews the row, and its owner does not know.
Renew(p) ==
    /\ Holds(p) /\ row.epoch = epoch[p] /\ Clock(p) > renewed[p]
    /\ row' = [row EXCEPT !.renewals = @ + 1]
    /\ \/ renewed' = [renewed EXCEPT ![p] = Clock(p)] /\ NoFault
       \/ UNCHANGED renewed /\ Fault
    /\ UNCHANGED <<now, behind, epoch, next, watching, sent, broker>>

\* A process that has missed its renewals, or reads another epoch, gives the shard up.
Drop(p) ==
    /\ epoch[p] # None /\ sent[p] = None
    /\ ~Holds(p) \/ row.epoch # epoch[p]
    /\ epoch' = [epoch EXCEPT ![p] = None]
    /\ watched' = [watched EXCEPT ![p] = None]
    /\ UNCHANGED <<now, behind, row, renewed, next, since, sent, broker>> /\ NoFault

Send(p) ==
    /\ epoch[p] # None /\ sent[p] = None /\ next[p] \in Events
    /\ SendsWhileItHolds => Holds(p)
    /\ sent' = [sent EXCEPT ![p] = next[p]]
    /\ UNCHANGED <<now, behind, claims, watching, broker>> /\ NoFault

\* The topic accepts it. An answer that is lost: it is sent again.
Arrive(p) ==
    /\ sent[p] # None
    /\ LET e == sent[p]
           isRepeat == TopicDetectsDuplicates /\ seen[e] # None /\ now - seen[e] < Window
       IN  IF isRepeat
           THEN UNCHANGED broker
           ELSE topic' = Append(topic, e) /\ seen' = [seen EXCEPT ![e] = now]
    /\ sent' = [sent EXCEPT ![p] = None]
    /\ \/ next' = [next EXCEPT ![p] = sent[p] + 1] /\ NoFault
       \/ UNCHANGED next /\ Fault
    /\ UNCHANGED <<now, behind, row, epoch, renewed, watching>>

\* The connection ends before it arrives.
Lose(p) ==
    /\ sent[p] # None
    /\ sent' = [sent EXCEPT ![p] = None]
    /\ next' = IF SendsInOrder THEN next ELSE [next EXCEPT ![p] = sent[p] + 1]
    /\ UNCHANGED <<now, behind, row, epoch, renewed, watching, broker>> /\ Fault

\* Consumer.store: it also renews the claim.
Store(p) ==
    /\ epoch[p] # None
    /\ StoresWhatWasAccepted => next[p] > 1 /\ sent[p] = None
    /\ LET cursor == IF StoresWhatWasAccepted THEN next[p] - 1 ELSE Commits
       IN  /\ cursor # row.cursor
           /\ StoresUnderItsEpoch => row.epoch = epoch[p]
           /\ row' = [row EXCEPT !.cursor = cursor, !.renewals = @ + 1]
    /\ renewed' = [renewed EXCEPT ![p] = Clock(p)]
    /\ UNCHANGED <<now, behind, epoch, next, watching, sent, broker>> /\ NoFault

\* The process is killed; what it has sent may have left.
Kill(p) ==
    /\ epoch[p] # None
    /\ epoch' = [epoch EXCEPT ![p] = None] /\ watched' = [watched EXCEPT ![p] = None]
    /\ sent' = [sent EXCEPT ![p] = None]
    /\ UNCHANGED <<now, behind, row, renewed, next, since, broker>> /\ Fault

\* An event that was accepted waits for its cursor at most half a window, and what is under way arrives meanwhile.
IsTimely(e) == e <= row.cursor \/ 2 * (now + 1 - seen[e]) < Window

Tick ==
    /\ now < MaxTime
    /\ now' = now + 1
    /\ WindowOutlastsOutage => \A e \in In(topic) : IsTimely(e)
    /\ \A p \in Procs : sent[p] = None
    /\ \/ UNCHANGED behind /\ NoFault
       \/ ~ClocksRunAlike /\ \E p \in Procs : behind' = [behind EXCEPT ![p] = @ + 1] /\ Fault
    /\ UNCHANGED <<claims, watching, sent, broker>>

Next ==
    \/ Tick
    \/ \E p \in Procs :
        \/ Watch(p) \/ Take(p) \/ Renew(p) \/ Drop(p) \/ Send(p) \/ Arrive(p) \/ Lose(p) \/ Store(p) \/ Kill(p)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------

\* Nothing lost: what lies before the cursor is in the topic.
G1 == \A e \in Events : e <= row.cursor => e \in In(topic)

\* Order within a key.
G2 == \A i \in 1..Len(topic) : \A e \in Events : e < topic[i] => \E j \in 1..(i - 1) : topic[j] = e

\* Once.
G3 == Len(topic) = Cardinality(In(topic))

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
