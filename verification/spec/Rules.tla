-------------------------------- MODULE Rules ---------------------------------
(* Rules that change while the streams of an outbox are apart. A generation of the rules counts from a commit time on;
   a bound says up to which time that is final. Both are in one row, or document, that is changed by compare-and-set.
   Each process has rules that it was deployed with, and a copy of the row that may be old. Any step may be delayed
   for ever, which is what a frozen process is. An event has one destination: the rules are its name.             *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    None,           \* no value
    Procs,          \* the relay's processes
    Commits,        \* the number of events, all of one key
    MaxTime,        \* the last commit time
    MaxFaults,      \* deployments, restores, and clocks that are wrong

    \* Safeguards. Each is TRUE; a run with one taken out is violated.
    RoutesByCommitTime,     \* relay/routes/history.py: an event goes by the generation of its commit time
    RoutesWhatIsFinal,      \* relay/routes/generations.py: no event is routed whose commit time lies behind the bound
    BeginsBehindTheBound,   \* relay/routes/generations.py: a generation begins at the bound or later
    ComparesAndSets,        \* relay/routes/rulebook.py: the row is replaced where it is still as it was read
    BoundIsWithPositions,   \* relay/backends/cosmos/timelines.py: the row is restored together with the positions
    EveryDestinationReads,  \* relay/config/streams.py: a destination that no rule names any more is read until it is left out

    \* Assumptions. Each is TRUE.
    TimesAreStored          \* an event has the same commit time for every process

Destinations == {"a", "b"}

VARIABLES
    now,        \* the outbox's clock
    events,     \* the commit times of the events, in the order of their commits
    row,        \* the row: its generations, and its bound
    rules,      \* process -> the rules that it was deployed with
    read,       \* process -> the row as it was read to be changed, None
    knows,      \* process -> the row by which it routes, None
    passed,     \* destination -> the number of events that its stream has passed
    topic,      \* destination -> the events that it has got, in order
    saved,      \* a copy of the row and the positions, None
    restored,   \* whether the copy was restored
    faults

outbox == <<now, events>>
streams == <<passed, topic>>
vars == <<outbox, row, rules, read, knows, streams, saved, restored, faults>>

Max(x, y) == IF x > y THEN x ELSE y
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}

\* Timeline.at: the last generation that has begun.
At(timeline, time) ==
    LET begun == {i \in 1..Len(timeline.list) : timeline.list[i].from <= time}
        last == CHOOSE i \in begun : \A j \in begun : j <= i
    IN  timeline.list[last].to

Last(timeline) == timeline.list[Len(timeline.list)].to

Init ==
    /\ now = 1 /\ events = <<>>
    /\ row = [list |-> <<[from |-> 0, to |-> "a"]>>, bound |-> 0]
    /\ rules = [p \in Procs |-> "a"]
    /\ read = [p \in Procs |-> None] /\ knows = [p \in Procs |-> None]
    /\ passed = [d \in Destinations |-> 0] /\ topic = [d \in Destinations |-> <<>>]
    /\ saved = None /\ restored = FALSE /\ faults = 0

Fault == faults < MaxFaults /\ faults' = faults + 1
NoFault == UNCHANGED faults

------------------------------------------------------------------------------
(* The outbox: its clock may stand still, and two events may have one time. *)

Tick ==
    /\ now < MaxTime /\ now' = now + 1
    /\ UNCHANGED <<events, row, rules, read, knows, streams, saved, restored>> /\ NoFault

\* The clocks of its replicas differ: a time may be one before that of an earlier event.
Commit(time) ==
    /\ Len(events) < Commits /\ time \in {now - 1, now}
    /\ events' = Append(events, time)
    /\ UNCHANGED <<now, row, rules, read, knows, streams, saved, restored>> /\ NoFault

------------------------------------------------------------------------------
(* A process. *)

\* It is replaced by one that was deployed with other rules, and knows nothing.
Deploy(p, to) ==
    /\ rules' = [rules EXCEPT ![p] = to]
    /\ read' = [read EXCEPT ![p] = None] /\ knows' = [knows EXCEPT ![p] = None]
    /\ UNCHANGED <<outbox, row, streams, saved, restored>> /\ Fault

\* Rulebook._look: the first half.
Read(p) ==
    /\ read[p] = None
    /\ read' = [read EXCEPT ![p] = row]
    /\ UNCHANGED <<outbox, row, rules, knows, streams, saved, restored>> /\ NoFault

\* Timeline.change and extend: the rules begin at this process's time, which is any, or at the bound; the bound is
\* moved to any later time.
Changed(timeline, to, time, bound) ==
    LET from == IF BeginsBehindTheBound THEN Max(timeline.bound, time) ELSE time
        kept == SelectSeq(timeline.list, LAMBDA each : each.from < from)
        list == IF Last(timeline) = to THEN timeline.list ELSE Append(kept, [from |-> from, to |-> to])
    IN  [list |-> list, bound |-> Max(timeline.bound, bound)]

\* Rulebook._look: the second half. A process that has looked before adds no rules; its clock may be wrong.
Write(p, time, bound) ==
    LET to == IF knows[p] = None THEN rules[p] ELSE Last(read[p])
        changed == Changed(read[p], to, time, bound)
    IN  /\ read[p] # None /\ (ComparesAndSets => row = read[p])
        /\ changed # read[p]
        /\ row' = changed
        /\ knows' = [knows EXCEPT ![p] = row']
        /\ read' = [read EXCEPT ![p] = None]
        /\ UNCHANGED <<outbox, rules, streams, saved, restored>> /\ NoFault

\* Nothing is to be changed, or the change is refused: then it reads again.
Keep(p) ==
    /\ read[p] # None
    /\ knows' = [knows EXCEPT ![p] = IF Last(read[p]) = rules[p] \/ knows[p] # None THEN read[p] ELSE @]
    /\ read' = [read EXCEPT ![p] = None]
    /\ UNCHANGED <<outbox, row, rules, streams, saved, restored>> /\ NoFault

Goes(p, time) ==
    LET seen == IF TimesAreStored THEN time ELSE time + 1
    IN  IF RoutesByCommitTime THEN At(knows[p], seen) ELSE rules[p]

\* StreamRules.within, and the pipeline: the next event of a stream is published, or ignored.
Pass(p, d) ==
    LET next == passed[d] + 1 IN
    /\ knows[p] # None /\ next <= Len(events)
    /\ RoutesWhatIsFinal => events[next] < knows[p].bound
    /\ EveryDestinationReads \/ d = Last(knows[p])
    /\ passed' = [passed EXCEPT ![d] = next]
    /\ topic' = IF Goes(p, events[next]) = d /\ next \notin In(topic[d])
                THEN [topic EXCEPT ![d] = Append(@, next)] ELSE topic
    /\ UNCHANGED <<outbox, row, rules, read, knows, saved, restored>> /\ NoFault

------------------------------------------------------------------------------
(* The lease container, or the database. *)

Save ==
    /\ saved = None /\ saved' = [row |-> row, passed |-> passed]
    /\ UNCHANGED <<outbox, row, rules, read, knows, streams, restored>> /\ Fault

\* The app is stopped meanwhile.
Restore ==
    /\ saved # None /\ ~restored
    /\ row' = saved.row
    /\ passed' = IF BoundIsWithPositions THEN saved.passed ELSE passed
    /\ restored' = TRUE
    /\ read' = [p \in Procs |-> None] /\ knows' = [p \in Procs |-> None]
    /\ UNCHANGED <<outbox, rules, topic, saved>> /\ Fault

------------------------------------------------------------------------------

Next ==
    \/ Tick \/ Save \/ Restore
    \/ \E time \in 0..MaxTime : Commit(time)
    \/ \E p \in Procs :
        \/ Read(p) \/ Keep(p)
        \/ \E to \in Destinations : Deploy(p, to)
        \/ \E time \in 0..MaxTime, bound \in 0..(MaxTime + 1) : Write(p, time, bound)
        \/ \E d \in Destinations : Pass(p, d)

Spec == Init /\ [][Next]_vars

\* A process moves the bound behind every event, and every stream is read.
FairSpec ==
    /\ Spec
    /\ \A p \in Procs :
        /\ WF_vars(Read(p)) /\ SF_vars(\E time \in 0..MaxTime : Write(p, time, MaxTime + 1)) /\ WF_vars(Keep(p))
        /\ \A d \in Destinations : SF_vars(Pass(p, d))

------------------------------------------------------------------------------

Wanted(d) == {e \in 1..Len(events) : At(row, events[e]) = d}

\* Nothing lost: an event that every stream has passed is at the destination of its time.
G1 == \A e \in 1..Len(events) :
    (\A d \in Destinations : passed[d] >= e) => e \in In(topic[At(row, events[e])])

\* Order within a key, at each destination.
G2 == restored \/ \A d \in Destinations : \A i, j \in 1..Len(topic[d]) : i < j => topic[d][i] < topic[d][j]

\* At no other destination than that of its time.
G3 == restored \/ \A d \in Destinations : \A e \in In(topic[d]) : e \in Wanted(d)

\* Nothing stuck.
G4 == <>[](\A e \in 1..Len(events) : e \in In(topic[At(row, events[e])]))

Symmetry == {f \in [Procs -> Procs] : \A p, q \in Procs : p # q => f[p] # f[q]}
==============================================================================
