-------------------------------- MODULE Park --------------------------------
(* What follows a poisoned event: records, the marker of a parked key, and orders in the quarantine, which several
   processes and an operator change at the same time.

   One world: the events of one partition key, in the order of their numbers, under one lease. The topic refuses
   one of them, until the cause is mended. All events are younger than half the duplicate detection window. So the
   topic drops what a process sends twice, and what a release sends twice; but days may pass between the two.
   Any step may be delayed for ever, which is what a frozen process, or an operator who goes home, is.         *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the relay's processes
    Policy,         \* RELAY_ON_POISON: "skip", "park" or "block"
    Count,          \* the number of events
    Ids,            \* the number of their ids: from there on, an event is another version of the same document
    Poison,         \* the event that the topic refuses, 0 for none
    Orders,         \* the number of events that an operator may order to be set aside
    MaxFaults,      \* steps that lose something: leases, answers, processes, readings, commands, orders, other keys

    \* Safeguards. Each is TRUE; a run with one taken out is violated.
    StoresBeforeSuccess,    \* relay/core/pipeline.py: an attempt succeeds once what it sets aside is stored
    StopsBehindPoison,      \* relay/servicebus/key_sender.py: with park and block nothing is sent behind what is set aside
    WaitsForPredecessors,   \* relay/core/plan.py: with park nothing is stored while an earlier event is still to be sent
    ReadsEachTime,          \* relay/core/orders.py: with park each attempt reads the parked keys
    ReadsOrdersAgain,       \* relay/core/orders.py: a repeated attempt reads the orders
    WaitsForReading,        \* relay/core/orders.py: a page that may have been attempted waits until the orders can be read
    ComparesWhatWasTried,   \* relay/core/pipeline.py: a page that may have been attempted is compared with the checkpoint
    ReadsAgain,             \* relay/core/pipeline.py: with park, parked keys are read again if it has passed something
    ComparesBeforeStoring,  \* relay/core/pipeline.py: what is to be stored is compared with the checkpoint
    RemembersSetAside,      \* relay/core/orders.py: a process remembers what it has set aside
    OrderWithRecord,        \* relay/quarantine/record.py: a record and its order are stored in one batch
    KeepsCarriedOut,        \* relay/quarantine/record.py: what was stored, as its order says, is not stored again
    OrdersHavePlaces,       \* relay/core/holds.py: an order that is carried out is about one version of its event
    MarkerHasPlace,         \* relay/core/holds.py: what lies before the event that parked its key is not parked
    BatchTouchesMarker,     \* relay/quarantine/parking.py: a record of a parked key is in one batch with its marker
    UnparksAsRead,          \* packages/operator/src/outbox_relay/operator/cli/quarantine_admin.py: the marker is removed only as it was read, before the count
    UnparksInterrupted,     \* packages/operator/src/outbox_relay/operator/cli/quarantine.py: a release unparks a key without records
    ReleasesInOrder,        \* packages/operator/src/outbox_relay/operator/cli/release.py: of a parked key, nothing is sent ahead of a record that stays
    RemovesAfterAcceptance, \* packages/operator/src/outbox_relay/operator/cli/release.py: a record is removed once its event was accepted
    KeepsWhatWasSetAside,   \* packages/operator/src/outbox_relay/operator/cli/quarantine_admin.py: no order replaces one that was carried out for the same version
    WithdrawsAsRead,        \* packages/operator/src/outbox_relay/operator/cli/quarantine_admin.py: an order is withdrawn only as it was read
    RemovalLeavesOrder,     \* packages/operator/src/outbox_relay/operator/cli/quarantine_admin.py: what was parked behind another event leaves an order when it is
                            \* removed
    OrdersOutlastComparisons, \* relay/core/holds.py: an order remains until nobody stores what was compared before its event was passed

    \* Assumptions. Each is TRUE.
    AttemptsDoNotOverlap,   \* during an attempt, nobody else sets aside what it publishes, nor publishes what it sets aside
    ReadsAreCurrent,        \* a reading of the quarantine has what other processes had written
    CountsAreCurrent,       \* a count of a key's records is at least as recent as the reading of its marker before
    SettingAsideTakesTime,  \* for two seconds after its commit, an event is neither set aside nor taken out of quarantine
    OrdersComeInTime        \* nobody orders an event to be set aside that is being published, or was

VARIABLES
    aged,       \* the number of events that are older than two seconds
    position,   \* the number of events that the lease has passed
    owner,      \* the process that owns the lease, or None
    refused,    \* the events that the topic refuses
    topic,      \* the events that subscribers get
    published,  \* those that a process had accepted
    released,   \* those that a release had accepted
    record,     \* the events in quarantine
    gone,       \* those whose record an operator has removed
    discarded,  \* of these, those that were not released
    order,      \* id -> None, 0 for an operator's order, or the event for which it was carried out
    marker,     \* None, or the event from which on the key is parked
    begin, end, \* process -> its page: the events after `begin`, up to `end`
    phase,      \* process -> what it does next
    first,      \* process -> whether it has not attempted its page before
    known,      \* process -> the orders that it has read
    parked,     \* process -> the marker that it has read
    passed,     \* process -> the events of its page that the checkpoint has passed
    todo,       \* process -> the events that this attempt still sends
    own,        \* process -> the events that it sets aside for their own reason
    behind,     \* process -> the events that it parks behind them
    failed,     \* process -> whether this attempt has failed
    accepted,   \* process -> the events that were accepted from it
    noted,      \* process -> the events that it may have stored
    stored,     \* process -> the events that it has stored
    over,       \* process -> the events of its page that others have published, set aside or removed meanwhile
    step,       \* what the operator does next
    list, sent, \* the records that a release has still to send, and those that it has to remove
    same,       \* whether the marker is as the operator has read it
    ordered,    \* the events that the operator has ordered to be set aside
    faults      \* the number of faults so far

lease == <<aged, position, owner>>
broker == <<refused, topic, published, released>>
quarantine == <<record, gone, discarded, order, marker>>
page == <<begin, end, first>>
memory == <<accepted, noted, stored>>
reading == <<known, parked, passed, over>>
work == <<todo, own, behind, failed>>
operator == <<step, list, sent, same, ordered>>
vars == <<lease, broker, quarantine, page, phase, memory, reading, work, operator, faults>>

Events == 1..Count
Names == 1..Ids
NameOf(e) == IF e > Ids THEN Ids ELSE e
\* What may be out of order, or in quarantine for its own reason.
Troubled == {Poison} \cup ordered
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Min(set) == CHOOSE e \in set : \A f \in set : e <= f
Page(p) == (begin[p] + 1)..end[p]
NoOrders == [n \in Names |-> None]

Init ==
    /\ aged = 0 /\ position = 0 /\ owner = None
    /\ refused = {Poison} \cap Events /\ topic = <<>> /\ published = {} /\ released = {}
    /\ record = {} /\ gone = {} /\ discarded = {} /\ order = NoOrders /\ marker = None
    /\ begin = [p \in Procs |-> 0] /\ end = [p \in Procs |-> 0]
    /\ phase = [p \in Procs |-> "none"] /\ first = [p \in Procs |-> TRUE]
    /\ known = [p \in Procs |-> NoOrders] /\ parked = [p \in Procs |-> None]
    /\ passed = [p \in Procs |-> {}] /\ todo = [p \in Procs |-> {}] /\ own = [p \in Procs |-> {}] /\ behind = [p \in Procs |-> {}]
    /\ failed = [p \in Procs |-> FALSE]
    /\ accepted = [p \in Procs |-> {}] /\ noted = [p \in Procs |-> {}] /\ stored = [p \in Procs |-> {}]
    /\ over = [p \in Procs |-> {}]
    /\ step = "idle" /\ list = {} /\ sent = {} /\ same = FALSE /\ ordered = {}
    /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1
NoFault == UNCHANGED faults

------------------------------------------------------------------------------
(* The platform. *)

Age ==
    /\ aged < Count /\ aged' = aged + 1
    /\ UNCHANGED <<position, owner, broker, quarantine, page, phase, memory, reading, work, operator>> /\ NoFault

\* The cause of the refusal ends: a limit is raised, a rule is corrected.
Mend ==
    /\ refused # {} /\ refused' = {}
    /\ UNCHANGED <<lease, topic, published, released, quarantine, page, phase, memory, reading, work, operator>>
    /\ NoFault

Acquire(p) ==
    /\ owner = None /\ phase[p] = "none" /\ owner' = p
    /\ UNCHANGED <<aged, position, broker, quarantine, page, phase, memory, reading, work, operator>> /\ NoFault

\* The old owner does not notice.
LoseLease ==
    /\ owner # None /\ owner' = None
    /\ UNCHANGED <<aged, position, broker, quarantine, page, phase, memory, reading, work, operator>> /\ Fault

Deliver(p) ==
    /\ owner = p /\ phase[p] = "none"
    /\ \E upto \in (position + 1)..Count : end' = [end EXCEPT ![p] = upto]
    /\ begin' = [begin EXCEPT ![p] = position]
    /\ phase' = [phase EXCEPT ![p] = "waiting"]
    /\ first' = [first EXCEPT ![p] = TRUE]
    /\ UNCHANGED <<lease, broker, quarantine, memory, reading, work, operator>> /\ NoFault

NoPage(p) ==
    /\ begin' = [begin EXCEPT ![p] = 0] /\ end' = [end EXCEPT ![p] = 0] /\ first' = [first EXCEPT ![p] = TRUE]
    /\ phase' = [phase EXCEPT ![p] = "none"]

Kill(p) ==
    /\ phase[p] # "none"
    /\ owner' = IF owner = p THEN None ELSE owner
    /\ NoPage(p)
    /\ known' = [known EXCEPT ![p] = NoOrders] /\ parked' = [parked EXCEPT ![p] = None]
    /\ passed' = [passed EXCEPT ![p] = {}]
    /\ todo' = [todo EXCEPT ![p] = {}] /\ own' = [own EXCEPT ![p] = {}] /\ behind' = [behind EXCEPT ![p] = {}]
    /\ failed' = [failed EXCEPT ![p] = FALSE]
    /\ accepted' = [accepted EXCEPT ![p] = {}] /\ noted' = [noted EXCEPT ![p] = {}]
    /\ stored' = [stored EXCEPT ![p] = {}] /\ over' = [over EXCEPT ![p] = {}]
    /\ UNCHANGED <<aged, position, broker, quarantine, operator>> /\ Fault

------------------------------------------------------------------------------
(* An attempt of a process at its page: Relay.handle in relay/core/pipeline.py. *)

\* relay/core/orders.py: it is repeated, or its first event is two seconds old.
MayHaveBeenTried(p) == ~first[p] \/ begin[p] < aged
MustRead(p) ==
    \/ Policy = "park" /\ ReadsEachTime
    \/ IF first[p] THEN MayHaveBeenTried(p) ELSE ReadsOrdersAgain

\* Orders.for_attempt, with the query of the quarantine. What a process has parked it knows however old the answer
\* is: StoredQuarantine.holds. What it has written itself may be missing, as its connection may be a new one; that
\* changes nothing where it remembers it.
Read(p) ==
    /\ phase[p] = "waiting" /\ MustRead(p)
    /\ \E current \in {TRUE, ReadsAreCurrent}, itself \in {TRUE, RemembersSetAside} :
        /\ known' = [known EXCEPT ![p] = [n \in Names |->
                        IF ~current \/ (~itself /\ order[n] \in stored[p]) THEN None ELSE order[n]]]
        /\ parked' = [parked EXCEPT ![p] = IF current \/ stored[p] # {} THEN marker ELSE None]
    /\ over' = [over EXCEPT ![p] = {}]
    /\ phase' = [phase EXCEPT ![p] = "read"]
    /\ UNCHANGED <<lease, broker, quarantine, page, memory, passed, work, operator>> /\ NoFault

\* It needs no reading. (Where it must read and cannot, the attempt fails, which is a step less.)
DoNotRead(p) ==
    /\ phase[p] = "waiting"
    /\ IF MustRead(p) THEN ~WaitsForReading /\ Policy # "park" /\ Fault ELSE NoFault
    /\ over' = [over EXCEPT ![p] = {}]
    /\ phase' = [phase EXCEPT ![p] = "read"]
    /\ UNCHANGED <<lease, broker, quarantine, page, memory, known, parked, passed, work, operator>>

\* Orders._without_removed and StoredQuarantine.remove: each is removed by itself, only as it was read, or stays.
IsBeingStored(e) == \E q \in Procs : phase[q] = "storing" /\ e \in own[q] \cup behind[q]
Forget(p) ==
    /\ phase[p] = "read"
    /\ \E n \in Names :
        /\ known[p][n] \in Events /\ known[p][n] <= position
        /\ OrdersOutlastComparisons => ~IsBeingStored(known[p][n])
        /\ known' = [known EXCEPT ![p][n] = None]
        /\ order' = IF order[n] = known[p][n] THEN [order EXCEPT ![n] = None] ELSE order
    /\ UNCHANGED <<lease, broker, record, gone, discarded, marker, page, phase, memory, parked, passed, over, work, operator>> /\ NoFault

\* relay/core/verdict.py, before sending, for each event of the page that the checkpoint has not passed.
Order(orders, e) == orders[NameOf(e)]
IsCarriedOut(p, orders, e) ==
    \/ RemembersSetAside /\ e \in stored[p]
    \/ IF OrdersHavePlaces THEN Order(orders, e) = e ELSE Order(orders, e) \in Events
IsOrdered(p, orders, e) == (RemembersSetAside /\ e \in noted[p]) \/ Order(orders, e) = 0

Judge(p, passes, orders, mark) ==
    LET open == {e \in Page(p) \ (accepted[p] \cup passes) : ~IsCarriedOut(p, orders, e)}
        aside == {e \in open : IsOrdered(p, orders, e)}
        held == {e \in open \ aside : /\ Policy = "park"
                                      /\ \/ mark # None /\ (MarkerHasPlace => mark <= e)
                                         \/ \E f \in aside : f < e}
    IN  /\ own' = [own EXCEPT ![p] = aside]
        /\ behind' = [behind EXCEPT ![p] = held]
        /\ todo' = [todo EXCEPT ![p] = open \ (aside \cup held)]
        /\ phase' = [phase EXCEPT ![p] = "sending"]
        /\ passed' = [passed EXCEPT ![p] = {}]
        \* With park the next attempt does not use it.
        /\ known' = [known EXCEPT ![p] = IF Policy = "park" /\ ReadsEachTime THEN NoOrders ELSE orders]
        /\ parked' = [parked EXCEPT ![p] = IF Policy = "park" /\ ReadsEachTime THEN None ELSE mark]
        /\ UNCHANGED failed

\* Fence.clear compares the page with the checkpoint, and relay/core/plan.py judges its events. What the checkpoint has
\* passed may have parked the key after the reading.
Plan(p) ==
    /\ phase[p] = "read"
    /\ LET passes == IF ComparesWhatWasTried /\ MayHaveBeenTried(p) THEN Page(p) \cap 1..position ELSE {}
       IN  IF Policy = "park" /\ passes # {} /\ ReadsAgain
           THEN /\ phase' = [phase EXCEPT ![p] = "passed"] /\ passed' = [passed EXCEPT ![p] = passes]
                /\ UNCHANGED <<known, parked, work>>
           ELSE Judge(p, passes, known[p], parked[p])
    /\ UNCHANGED <<lease, broker, quarantine, page, memory, over, operator>> /\ NoFault

ReadAgain(p) ==
    /\ phase[p] = "passed"
    /\ Judge(p, passed[p], [n \in Names |-> IF order[n] = None THEN known[p][n] ELSE order[n]], marker)
    /\ UNCHANGED <<lease, broker, quarantine, page, memory, over, operator>> /\ NoFault

\* What attempts of others do not know.
SeenByOthers(p, set) ==
    over' = [q \in Procs |-> IF q # p /\ phase[q] \notin {"none", "waiting"} THEN over[q] \cup (set \cap Page(q))
                             ELSE over[q]]

\* relay/servicebus/key_sender.py. The topic accepts the next event; its answer may be lost.
Accept(p) ==
    /\ phase[p] = "sending" /\ todo[p] # {}
    /\ LET e == Min(todo[p])
       IN  /\ e \notin refused
           /\ AttemptsDoNotOverlap => e \notin over[p] \cap (record \cup gone)
           /\ OrdersComeInTime => order[NameOf(e)] # 0
           /\ topic' = IF e \in In(topic) THEN topic ELSE Append(topic, e)
           /\ published' = published \cup {e}
           /\ SeenByOthers(p, {e})
           /\ \/ /\ accepted' = [accepted EXCEPT ![p] = @ \cup {e}]
                 /\ todo' = [todo EXCEPT ![p] = @ \ {e}]
                 /\ UNCHANGED failed /\ NoFault
              \/ /\ todo' = [todo EXCEPT ![p] = {}] /\ failed' = [failed EXCEPT ![p] = TRUE]
                 /\ UNCHANGED accepted /\ Fault
    /\ UNCHANGED <<lease, refused, released, quarantine, page, phase, noted, stored, known, parked, passed, own, behind,
                   operator>>

\* It does not reach the topic, or it is refused and waits: for evidence, or with block for an order.
FailToSend(p) ==
    /\ phase[p] = "sending" /\ todo[p] # {}
    /\ todo' = [todo EXCEPT ![p] = {}] /\ failed' = [failed EXCEPT ![p] = TRUE]
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, own, behind, operator>>
    /\ IF Policy = "block" /\ Min(todo[p]) \in refused THEN NoFault ELSE Fault

\* The verdict after a refusal: it is set aside.
SetAside(p) ==
    /\ phase[p] = "sending" /\ todo[p] # {} /\ Policy # "block"
    /\ LET e == Min(todo[p])
           stops == Policy = "park" /\ StopsBehindPoison
       IN  /\ e \in refused /\ (SettingAsideTakesTime => e <= aged)
           /\ own' = [own EXCEPT ![p] = @ \cup {e}]
           /\ todo' = [todo EXCEPT ![p] = IF stops THEN {} ELSE @ \ {e}]
           /\ behind' = [behind EXCEPT ![p] = IF stops THEN @ \cup (todo[p] \ {e}) ELSE @]
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, failed, operator>> /\ NoFault

\* plan.settle, and the comparison right before what is set aside is stored: Fence.passed.
Settle(p) ==
    /\ phase[p] = "sending" /\ todo[p] = {}
    /\ LET waits == Policy = "park" /\ failed[p] /\ WaitsForPredecessors
           left(set) == IF waits THEN {} ELSE IF ComparesBeforeStoring THEN set \ 1..position ELSE set
       IN  /\ own' = [own EXCEPT ![p] = left(@)]
           /\ behind' = [behind EXCEPT ![p] = left(@)]
           /\ noted' = [noted EXCEPT ![p] = @ \cup left(own[p])]
           /\ phase' = [phase EXCEPT ![p] = IF own'[p] \cup behind'[p] = {} THEN "over" ELSE "storing"]
    /\ over' = [over EXCEPT ![p] = (@ \cup {e \in published \cap own'[p] : order[NameOf(e)] # 0}) \ 1..position]
    /\ UNCHANGED <<lease, broker, quarantine, page, accepted, stored, known, parked, passed, todo, failed, operator>>
    /\ NoFault

\* It was stored before, by somebody who did not know of this attempt, and is in quarantine no longer.
WasStored(e) == KeepsCarriedOut /\ order[NameOf(e)] = e /\ e \notin record
Overlaps(p, e) ==
    \/ e \in published \cap over[p]
    \/ e \in published \cap own[p] /\ e > position /\ order[NameOf(e)] # 0

Answered(p, set, to) ==
    \/ stored' = [stored EXCEPT ![p] = @ \cup set] /\ phase' = [phase EXCEPT ![p] = to] /\ UNCHANGED failed /\ NoFault
    \/ UNCHANGED stored /\ failed' = [failed EXCEPT ![p] = TRUE] /\ phase' = [phase EXCEPT ![p] = "over"] /\ Fault

\* create_held in relay/quarantine/record.py: an event by itself, its record and its order in one batch.
StoreOne(p) ==
    /\ phase[p] = "storing" /\ Policy # "park"
    /\ LET e == Min(own[p])
           set == IF WasStored(e) THEN {} ELSE {e}
       IN  /\ AttemptsDoNotOverlap => ~Overlaps(p, e)
           /\ record' = record \cup set
           /\ order' = [n \in Names |-> IF n = NameOf(e) /\ OrderWithRecord THEN e ELSE order[n]]
           /\ SeenByOthers(p, set)
           /\ own' = [own EXCEPT ![p] = @ \ {e}]
           /\ Answered(p, {e}, IF own[p] = {e} THEN "over" ELSE "storing")
    /\ UNCHANGED <<lease, broker, gone, discarded, marker, page, accepted, noted, known, parked, passed, todo, behind, operator>>

\* ParkedKey.store in relay/quarantine/parking.py: a record, its order if it has one, and the marker, which is created
\* or touched. If the key is no longer parked, or the record has left quarantine, the next attempt looks again.
StoreParked(p) ==
    /\ phase[p] = "storing" /\ Policy = "park"
    /\ LET e == Min(own[p] \cup behind[p])
           left == (own[p] \cup behind[p]) \ {e}
       IN  IF \/ e \in behind[p] /\ marker = None /\ BatchTouchesMarker
              \/ WasStored(e)
           THEN /\ failed' = [failed EXCEPT ![p] = TRUE] /\ phase' = [phase EXCEPT ![p] = "over"]
                /\ own' = [own EXCEPT ![p] = {}] /\ behind' = [behind EXCEPT ![p] = {}]
                /\ UNCHANGED <<record, order, marker, stored, over, same>> /\ NoFault
           ELSE /\ AttemptsDoNotOverlap => ~Overlaps(p, e)
                /\ record' = record \cup {e}
                /\ order' = IF e \in own[p] /\ OrderWithRecord THEN [order EXCEPT ![NameOf(e)] = e] ELSE order
                /\ marker' = IF marker = None /\ e \in own[p] THEN e ELSE marker
                /\ same' = (same /\ ~BatchTouchesMarker)
                /\ SeenByOthers(p, {e})
                /\ own' = [own EXCEPT ![p] = @ \ {e}] /\ behind' = [behind EXCEPT ![p] = @ \ {e}]
                /\ Answered(p, {e}, IF left = {} THEN "over" ELSE "storing")
    /\ UNCHANGED <<lease, broker, gone, discarded, page, accepted, noted, known, parked, passed, todo, step, list, sent,
                   ordered>>

\* The invocation raises, for this key or for another one of its page, and is repeated.
Retry(p) ==
    /\ phase[p] = "over"
    /\ phase' = [phase EXCEPT ![p] = "waiting"]
    /\ first' = [first EXCEPT ![p] = FALSE]
    /\ failed' = [failed EXCEPT ![p] = FALSE]
    /\ own' = [own EXCEPT ![p] = {}] /\ behind' = [behind EXCEPT ![p] = {}]
    /\ UNCHANGED <<lease, broker, quarantine, begin, end, memory, reading, todo, operator>>
    /\ IF failed[p] THEN NoFault ELSE Fault

\* It succeeds, and the host writes the position, unless the lease is no longer its own.
Checkpoint(p) ==
    /\ \/ phase[p] = "over" /\ ~failed[p]
       \/ ~StoresBeforeSuccess /\ phase[p] = "storing" /\ ~failed[p]
    /\ position' = IF owner = p THEN end[p] ELSE position
    /\ NoPage(p)
    /\ own' = [own EXCEPT ![p] = {}] /\ behind' = [behind EXCEPT ![p] = {}]
    /\ over' = [over EXCEPT ![p] = {}]
    /\ UNCHANGED <<aged, owner, broker, quarantine, memory, known, parked, passed, todo, failed, operator>> /\ NoFault

------------------------------------------------------------------------------
(* The operator: one command at a time, which may be interrupted. *)

MayLeave(e) == SettingAsideTakesTime => e <= aged

\* What is set aside for its own reason has an order, which keeps it from coming back; what was parked behind another
\* event gets one. Records.remove.
Leave(e) ==
    order' = IF RemovalLeavesOrder /\ e \notin Troubled THEN [order EXCEPT ![NameOf(e)] = e] ELSE order

\* `quarantine release`: Release.release and Release.release_parked in packages/operator/src/outbox_relay/operator/cli/release.py.
List ==
    /\ step = "idle" /\ record # {}
    /\ step' = "releasing" /\ list' = record /\ sent' = {}
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, work, same, ordered>> /\ NoFault

CanRelease(e) ==
    /\ Policy = "park" /\ ReleasesInOrder => e = Min(list)
    /\ e \notin refused /\ MayLeave(e)

Release ==
    /\ step = "releasing"
    /\ \E e \in list :
        /\ CanRelease(e)
        /\ released' = released \cup {e}
        /\ topic' = IF e \in In(topic) THEN topic ELSE Append(topic, e)
        /\ list' = list \ {e} /\ sent' = sent \cup {e}
    /\ UNCHANGED <<lease, refused, published, quarantine, page, phase, memory, reading, work, step, same, ordered>>
    /\ NoFault

\* Records.remove.
Remove ==
    /\ step = "releasing"
    /\ \E e \in IF RemovesAfterAcceptance THEN sent ELSE sent \cup list :
        /\ record' = record \ {e} /\ gone' = gone \cup {e}
        /\ sent' = sent \ {e}
        /\ Leave(e)
        /\ SeenByOthers(None, {e})
    /\ UNCHANGED <<lease, broker, discarded, marker, page, phase, memory, known, parked, passed, work, step, list, same,
                   ordered>>
    /\ NoFault

\* `quarantine discard`.
Discard(e) ==
    /\ step = "idle" /\ e \in record /\ MayLeave(e)
    /\ record' = record \ {e} /\ gone' = gone \cup {e}
    /\ discarded' = IF e \in released THEN discarded ELSE discarded \cup {e}
    /\ Leave(e)
    /\ SeenByOthers(None, {e})
    /\ step' = "removed"
    /\ UNCHANGED <<lease, broker, marker, page, phase, memory, known, parked, passed, work, list, sent, same, ordered>>
    /\ NoFault

\* The command has done what it can with its records.
Finish ==
    /\ \/ step = "releasing" /\ sent = {} /\ ~\E e \in list : CanRelease(e)
       \/ step \in {"removed", "withdrawing"}
    /\ step' = IF step = "releasing" THEN "removed" ELSE "idle"
    /\ list' = {}
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, work, sent, same, ordered>> /\ NoFault

Interrupt ==
    /\ step # "idle" /\ step' = "idle"
    /\ list' = {} /\ sent' = {} /\ same' = FALSE
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, work, ordered>> /\ Fault

\* Records.unpark: reads the marker, counts the records, and removes the marker as it was read.
ReadMarker ==
    /\ step = "removed" \/ (step = "idle" /\ UnparksInterrupted)
    /\ marker # None
    /\ step' = "counting" /\ same' = TRUE
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, work, list, sent, ordered>> /\ NoFault

CountRecords ==
    /\ step = "counting"
    /\ step' = IF record = {} \/ ~CountsAreCurrent THEN "unparking" ELSE "idle"
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, work, list, sent, same, ordered>> /\ NoFault

Unpark ==
    /\ step = "unparking"
    /\ marker' = IF same \/ ~UnparksAsRead THEN None ELSE marker
    /\ step' = "idle" /\ same' = FALSE
    /\ UNCHANGED <<lease, broker, record, gone, discarded, order, page, phase, memory, reading, work, list, sent, ordered>>
    /\ NoFault

\* `quarantine add`: Records.order.
Add(e) ==
    /\ step = "idle" /\ Cardinality(ordered \cup {e}) <= Orders
    /\ SettingAsideTakesTime => e <= aged
    /\ OrdersComeInTime => e \notin published
    /\ e \notin gone
    /\ order[NameOf(e)] # 0 /\ (KeepsWhatWasSetAside => order[NameOf(e)] # e)
    /\ order' = [order EXCEPT ![NameOf(e)] = 0]
    /\ ordered' = ordered \cup {e}
    /\ UNCHANGED <<lease, broker, record, gone, discarded, marker, page, phase, memory, reading, work, step, list, sent, same>>
    /\ NoFault

\* `quarantine discard` of an order: Records.find_orders, a question, Records.withdraw.
FindOrder ==
    /\ step = "idle" /\ \E n \in Names : order[n] = 0
    /\ step' = "withdrawing"
    /\ UNCHANGED <<lease, broker, quarantine, page, phase, memory, reading, work, list, sent, same, ordered>> /\ NoFault

Withdraw ==
    /\ step = "withdrawing"
    /\ order' = [n \in Names |-> IF order[n] = 0 \/ ~WithdrawsAsRead THEN None ELSE order[n]]
    /\ step' = "idle"
    /\ UNCHANGED <<lease, broker, record, gone, discarded, marker, page, phase, memory, reading, work, list, sent, same, ordered>>
    /\ Fault

------------------------------------------------------------------------------

Next ==
    \/ Age \/ Mend \/ LoseLease
    \/ List \/ Release \/ Remove \/ Finish \/ Interrupt \/ ReadMarker \/ CountRecords \/ Unpark \/ FindOrder \/ Withdraw
    \/ \E e \in Events : Discard(e) \/ Add(e)
    \/ \E p \in Procs :
        \/ Acquire(p) \/ Deliver(p) \/ Kill(p) \/ Read(p) \/ DoNotRead(p) \/ Forget(p) \/ Plan(p) \/ ReadAgain(p)
        \/ Accept(p) \/ FailToSend(p) \/ SetAside(p) \/ Settle(p) \/ StoreOne(p) \/ StoreParked(p)
        \/ Retry(p) \/ Checkpoint(p)

Steps ==
    /\ WF_vars(Age)
    /\ \A p \in Procs :
        /\ WF_vars(Acquire(p)) /\ WF_vars(Deliver(p)) /\ WF_vars(Read(p)) /\ WF_vars(DoNotRead(p) /\ NoFault)
        /\ WF_vars(Plan(p)) /\ WF_vars(ReadAgain(p)) /\ WF_vars(Accept(p) /\ NoFault)
        /\ WF_vars(FailToSend(p) /\ NoFault) /\ WF_vars(SetAside(p)) /\ WF_vars(Settle(p))
        /\ WF_vars(StoreOne(p) /\ NoFault) /\ WF_vars(StoreParked(p) /\ NoFault)
        /\ WF_vars(Retry(p) /\ NoFault) /\ WF_vars(Checkpoint(p))

\* An operator who releases what is in quarantine, discards what the topic still refuses, and orders what blocks.
Commands ==
    /\ WF_vars(Release) /\ WF_vars(Remove) /\ WF_vars(Finish)
    /\ WF_vars(CountRecords) /\ WF_vars(Unpark)
    /\ SF_vars(List) /\ SF_vars(ReadMarker)
    /\ SF_vars(\E e \in refused : Discard(e))
    /\ SF_vars(\E e \in refused : Policy = "block" /\ Add(e))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Steps /\ Commands

------------------------------------------------------------------------------
(* The guarantees. *)

\* Nothing lost: what the lease has passed was accepted, is in quarantine, or an operator has discarded it.
G1 == \A e \in Events : e <= position => e \in published \cup released \cup record \cup discarded

IsBefore(e, i) == \E j \in 1..(i - 1) : topic[j] = e

\* Order within the key. With skip, of the events that nothing sets aside; with block, nothing passes an event, unless
\* an operator has ordered it to be set aside; with park, of all that are not discarded, releases included.
G2 == \A i \in 1..Len(topic) : \A e \in Events :
    e < topic[i] /\ ~IsBefore(e, i) =>
        CASE Policy = "skip" -> e \in Troubled \/ topic[i] \in released
          [] Policy = "block" -> e \in ordered \/ topic[i] \in released
          [] Policy = "park" -> e \in discarded

\* Once: what is in quarantine, or was, is not published, and what has left it does not come back.
G3 == /\ published \cap (record \cup gone \cup released) = {}
      /\ record \cap gone = {}

\* Nothing stuck: each event is passed, nothing stays in quarantine, and its key flows again.
G4 == <>(position = Count /\ record = {} /\ marker = None)

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
