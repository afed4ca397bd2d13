-------------------------------- MODULE Claims --------------------------------
(* The claim of a shard of an SQL feed: a row that is changed by compare-and-set. Its owner publishes the events
   behind the cursor, in order, and stores the cursor. An observer takes a claim whose row has not changed for a
   while on its own clock. Any step may be delayed for ever, which is what a frozen process is. Time has no end:
   what counts is how long ago something was, up to where it makes no difference any more.                     *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the relay's processes
    Commits,        \* the number of events in the feed, all of one key
    Window,         \* the duplicate detection window, in ticks; 0 for one without end
    MaxFaults,      \* steps that lose something, hand the shard over, end a process or start it again

    \* Safeguards. Each is TRUE; a run with one taken out is violated.
    StoresUnderItsEpoch,    \* outbox_relay/changefeed/claims.py: the cursor is stored where the row has the epoch of the claim
    TakingRaisesEpoch,      \* outbox_relay/changefeed/claims.py: whoever takes a claim raises its epoch
    TakesAsItRead,          \* outbox_relay/changefeed/claims.py: a claim is taken where the row is still as it was read
    SendsWhileItHolds,      \* relay/backends/sql/source.py: nothing is sent once the claim was not renewed in time
    SendsInOrder,           \* relay/servicebus/key_sender.py: nothing is sent ahead of an event that was not accepted
    StoresWhatWasAccepted,  \* relay/backends/sql/shard.py: the cursor is stored after its page was accepted
    DeadClaimsAreTaken,     \* relay/backends/sql/worker.py: a claim whose row has not changed for its time is taken

    \* Assumptions. Each is TRUE.
    TopicDetectsDuplicates, \* a message id that came within the window is dropped
    TransfersEnd,           \* what was written to a connection arrives within half a window, or never
    ClocksRunAlike,         \* while a claim lasts, clocks run apart by less than a fifth of it
    WindowOutlastsOutage    \* an event that was accepted is behind the cursor within half a window

VARIABLES
    owner,      \* the owner in the row: a process, None, or Dead where that process has ended
    cursor,     \* the cursor in the row
    alive,      \* process -> whether it runs
    has,        \* process -> whether it believes that it has the claim
    valid,      \* process -> whether the row has the epoch of its claim
    age,        \* process -> ticks on its own clock since it renewed the claim, up to Hold
    missed,     \* process -> ticks that its clock has missed since then
    saw,        \* process -> whether it has read the row as it is
    still,      \* process -> ticks since it first did, up to Claim
    next,       \* process -> the event that it publishes next
    sent,       \* process -> the event that is on its way, and for how long, None
    topic,      \* the events that subscribers get
    seen,       \* event -> ticks since the topic accepted it, up to Window, None before
    faults

claiming == <<owner, valid, has, age, missed>>
watching == <<saw, still>>
broker == <<topic, seen>>
vars == <<claiming, cursor, alive, watching, next, sent, broker, faults>>

Events == 1..Commits
Dead == "dead"
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Min(x, y) == IF x < y THEN x ELSE y
\* An owner stops at 80 % of the time after which others may take the claim.
Hold == 2
Claim == 3
Holds(p) == has[p] /\ age[p] < Hold

Init ==
    /\ owner = None /\ cursor = 0
    /\ alive = [p \in Procs |-> TRUE]
    /\ has = [p \in Procs |-> FALSE] /\ valid = [p \in Procs |-> FALSE]
    /\ age = [p \in Procs |-> 0] /\ missed = [p \in Procs |-> 0]
    /\ saw = [p \in Procs |-> FALSE] /\ still = [p \in Procs |-> 0]
    /\ next = [p \in Procs |-> 1] /\ sent = [p \in Procs |-> None]
    /\ topic = <<>> /\ seen = [e \in Events |-> None]
    /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1
NoFault == UNCHANGED faults

\* Its version is another one, which nobody has read yet. What others have read before is of no use to them.
RowChanges ==
    /\ saw' = [q \in Procs |-> FALSE]
    /\ still' = IF TakesAsItRead THEN [q \in Procs |-> 0] ELSE still
Renewed(p) == age' = [age EXCEPT ![p] = 0] /\ missed' = [missed EXCEPT ![p] = 0]
Epoch(raised, p) == [q \in Procs |-> q = p \/ (~raised /\ valid[q])]
Forget(p) ==
    /\ has' = [has EXCEPT ![p] = FALSE]
    /\ Renewed(p)
    /\ next' = [next EXCEPT ![p] = 1]

------------------------------------------------------------------------------
(* Observers: Worker._round, a few times within a claim's time. *)

\* Consumer.claims, and Watch.
Watch(p) ==
    /\ alive[p] /\ ~has[p] /\ ~saw[p]
    /\ saw' = [saw EXCEPT ![p] = TRUE] /\ still' = [still EXCEPT ![p] = 0]
    /\ UNCHANGED <<claiming, cursor, alive, next, sent, broker>> /\ NoFault

MayTake(p) ==
    /\ alive[p] /\ ~has[p] /\ sent[p] = None /\ (TakesAsItRead => saw[p])
    /\ owner = None \/ (DeadClaimsAreTaken /\ owner # p /\ still[p] >= Claim)

\* Consumer.take: compare-and-set on the version.
Take(p) ==
    /\ MayTake(p)
    /\ owner' = p /\ valid' = Epoch(TakingRaisesEpoch, p)
    /\ has' = [has EXCEPT ![p] = TRUE] /\ next' = [next EXCEPT ![p] = cursor + 1]
    /\ Renewed(p) /\ RowChanges
    /\ UNCHANGED <<cursor, alive, sent, broker>> /\ NoFault

\* Its answer is lost: the process finds itself as the owner when it reads the claims again.
TakeUnknowingly(p) ==
    /\ MayTake(p)
    /\ owner' = p /\ valid' = [q \in Procs |-> ~TakingRaisesEpoch /\ valid[q]]
    /\ RowChanges
    /\ UNCHANGED <<has, age, missed, cursor, alive, next, sent, broker>> /\ Fault

\* Worker._keep: it begins, or begins again, where the row names it as the owner.
Resume(p) ==
    /\ alive[p] /\ ~has[p] /\ sent[p] = None /\ owner = p
    /\ has' = [has EXCEPT ![p] = TRUE] /\ valid' = [valid EXCEPT ![p] = TRUE]
    /\ next' = [next EXCEPT ![p] = cursor + 1]
    /\ Renewed(p) /\ RowChanges
    /\ UNCHANGED <<owner, cursor, alive, sent, broker>> /\ NoFault

------------------------------------------------------------------------------
(* The owner. *)

\* Consumer.renew. An answer that is lost renews the row, and its owner does not know.
Renew(p, isAnswered) ==
    /\ alive[p] /\ has[p] /\ valid[p] /\ age[p] > 0
    /\ RowChanges
    /\ IF isAnswered THEN Renewed(p) /\ NoFault ELSE UNCHANGED <<age, missed>> /\ Fault
    /\ UNCHANGED <<owner, valid, has, cursor, alive, next, sent, broker>>

\* A process that has missed its renewals, or reads another epoch, gives the shard up.
Drop(p) ==
    /\ alive[p] /\ has[p] /\ sent[p] = None
    /\ ~Holds(p) \/ ~valid[p]
    /\ Forget(p)
    /\ UNCHANGED <<owner, valid, cursor, alive, watching, sent, broker>> /\ NoFault

Send(p) ==
    /\ alive[p] /\ has[p] /\ sent[p] = None /\ next[p] \in Events
    /\ SendsWhileItHolds => Holds(p)
    /\ sent' = [sent EXCEPT ![p] = [event |-> next[p], for |-> 0]]
    /\ UNCHANGED <<claiming, cursor, alive, watching, next, broker>> /\ NoFault

\* The topic accepts it. An answer that is lost: it is sent again.
Arrive(p, isAnswered) ==
    /\ sent[p] # None
    /\ LET e == sent[p].event
           isRepeat == TopicDetectsDuplicates /\ seen[e] # None /\ (Window = 0 \/ seen[e] # Window)
       IN  /\ IF isRepeat
              THEN UNCHANGED broker
              ELSE topic' = Append(topic, e) /\ seen' = [seen EXCEPT ![e] = 0]
           /\ next' = IF isAnswered /\ has[p] THEN [next EXCEPT ![p] = e + 1] ELSE next
    /\ sent' = [sent EXCEPT ![p] = None]
    /\ IF isAnswered THEN NoFault ELSE Fault
    /\ UNCHANGED <<claiming, cursor, alive, watching>>

\* The connection ends before it arrives.
Lose(p) ==
    /\ sent[p] # None
    /\ next' = IF SendsInOrder \/ ~has[p] THEN next ELSE [next EXCEPT ![p] = sent[p].event + 1]
    /\ sent' = [sent EXCEPT ![p] = None]
    /\ UNCHANGED <<claiming, cursor, alive, watching, broker>> /\ Fault

\* Consumer.store: it also renews the claim.
Store(p, isAnswered) ==
    /\ alive[p] /\ has[p] /\ sent[p] = None
    /\ StoresUnderItsEpoch => valid[p]
    /\ cursor' = IF StoresWhatWasAccepted THEN next[p] - 1 ELSE Commits
    /\ cursor' # cursor
    /\ RowChanges
    /\ IF isAnswered THEN Renewed(p) /\ NoFault ELSE UNCHANGED <<age, missed>> /\ Fault
    /\ UNCHANGED <<owner, valid, has, alive, next, sent, broker>>

\* Consumer.release, after the page under way: to the process that has asked for the shard, or to whoever comes.
HandOver(p, successor) ==
    /\ alive[p] /\ has[p] /\ valid[p] /\ sent[p] = None /\ successor # p
    /\ owner' = successor /\ valid' = [q \in Procs |-> FALSE]
    /\ Forget(p) /\ RowChanges
    /\ UNCHANGED <<cursor, alive, sent, broker>> /\ Fault

------------------------------------------------------------------------------

\* What it has sent may arrive later. The row names it until another process has waited for its claim to end.
Kill(p) ==
    /\ alive[p] /\ \E q \in Procs \ {p} : alive[q]
    /\ alive' = [alive EXCEPT ![p] = FALSE]
    /\ owner' = IF owner = p THEN Dead ELSE owner
    /\ valid' = [valid EXCEPT ![p] = FALSE]
    /\ saw' = [saw EXCEPT ![p] = FALSE] /\ still' = [still EXCEPT ![p] = 0]
    /\ Forget(p)
    /\ UNCHANGED <<cursor, sent, broker>> /\ Fault

\* Under another name.
Start(p) ==
    /\ ~alive[p] /\ sent[p] = None
    /\ alive' = [alive EXCEPT ![p] = TRUE]
    /\ UNCHANGED <<claiming, cursor, watching, next, sent, broker>> /\ Fault

\* A clock that misses more than a tick of a claim's time is beyond the assumption.
MayMiss(p) == has[p] /\ age[p] < Hold /\ (ClocksRunAlike => missed[p] = 0)

Tick ==
    /\ WindowOutlastsOutage /\ Window # 0 => \A e \in In(topic) : e <= cursor \/ 2 * (seen[e] + 1) < Window
    /\ \E late \in SUBSET {p \in Procs : MayMiss(p)} :
        /\ age' = [p \in Procs |-> IF has[p] /\ p \notin late THEN Min(age[p] + 1, Hold) ELSE age[p]]
        /\ missed' = [p \in Procs |-> IF p \in late /\ ClocksRunAlike THEN 1 ELSE missed[p]]
    /\ still' = [p \in Procs |-> IF saw[p] \/ ~TakesAsItRead THEN Min(still[p] + 1, Claim) ELSE 0]
    /\ seen' = [e \in Events |-> IF seen[e] = None THEN None ELSE Min(seen[e] + 1, Window)]
    /\ sent' = [p \in Procs |->
        IF sent[p] = None \/ (TransfersEnd /\ 2 * (sent[p].for + 1) >= Window) THEN None
        ELSE [sent[p] EXCEPT !.for = Min(@ + 1, Window)]]
    /\ UNCHANGED <<owner, valid, has, cursor, alive, saw, next, topic>> /\ NoFault

Next ==
    \/ Tick
    \/ \E p \in Procs :
        \/ Watch(p) \/ Take(p) \/ TakeUnknowingly(p) \/ Resume(p) \/ Drop(p) \/ Send(p) \/ Lose(p) \/ Kill(p) \/ Start(p)
        \/ \E isAnswered \in BOOLEAN : Renew(p, isAnswered) \/ Arrive(p, isAnswered) \/ Store(p, isAnswered)
        \/ \E successor \in Procs \cup {None} : HandOver(p, successor)

Spec == Init /\ [][Next]_vars

\* A process that runs renews, sends and stores now and then before its claim ends.
FairSpec ==
    /\ Spec /\ WF_vars(Tick)
    /\ \A p \in Procs :
        /\ WF_vars(Watch(p)) /\ WF_vars(Take(p)) /\ WF_vars(Resume(p)) /\ WF_vars(Drop(p))
        /\ SF_vars(Renew(p, TRUE)) /\ SF_vars(Send(p)) /\ SF_vars(Arrive(p, TRUE)) /\ SF_vars(Store(p, TRUE))

------------------------------------------------------------------------------

\* Nothing lost: what lies before the cursor is in the topic.
G1 == \A e \in Events : e <= cursor => e \in In(topic)

\* Order within a key.
G2 == \A i \in 1..Len(topic) : \A e \in Events : e < topic[i] => \E j \in 1..(i - 1) : topic[j] = e

\* Once.
G3 == Len(topic) = Cardinality(In(topic))

\* Nothing stuck: each event is published and stored, and the shard has an owner that runs.
G4 == <>(cursor = Commits) /\ []<>(\E p \in Procs : alive[p] /\ has[p] /\ valid[p])

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
