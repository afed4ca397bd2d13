"""`python -m relay quarantine list | show | discard | add`, and the ids that they take."""

from __future__ import annotations

import pytest

from relay.core import holds
from relay.core.documents import SourceDocument
from relay.core.events import Reason, Rejected
from relay.quarantine.items import Item
from tests.support.operators import shell_words
from tests.unit.relay.commands import Deployment, record_id
from tests.unit.relay.shelf import event, order, put


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


# ids


@pytest.mark.parametrize("digits", [0, 2, 7])
@pytest.mark.parametrize("command", ["show", "release", "discard"])
async def test_an_id_that_is_too_short_names_nothing(deployment: Deployment, command: str, digits: int) -> None:
    (identifier,) = put(deployment, "a-1")

    short = await deployment.run("quarantine", command, identifier[:digits], typed="yes\n")
    assert short.code == 2
    assert "give at least its first 8 characters" in short.err
    assert deployment.records.left == ["a-1"]
    assert (await deployment.run("quarantine", command, identifier[:8], typed="yes\n")).code == 0


@pytest.mark.parametrize("digits", [0, 2, 7])
async def test_an_order_whose_id_is_too_short_is_not_withdrawn(deployment: Deployment, digits: int) -> None:
    deployment.records.pending = [order(record_id("x"), "x")]
    prefix = len("set-aside:")

    short = await deployment.run(
        "quarantine", "discard", f"set-aside:{record_id('x')}"[: prefix + digits], "--yes"
    )
    assert (short.code, len(deployment.records.pending)) == (2, 1)
    assert "give at least its first 8 characters after set-aside:" in short.err


@pytest.mark.parametrize("command", ["show", "release"])
async def test_an_order_is_no_record_and_the_answer_says_how_to_withdraw_it(
    deployment: Deployment, command: str
) -> None:
    deployment.records.pending = [order(record_id("x"), "x")]

    run = await deployment.run("quarantine", command, f"set-aside:{record_id('x')[:8]}")
    suggested = shell_words(run.err.partition("python -m relay ")[2])

    assert run.code == 2
    assert (await deployment.run(*suggested, typed="yes\n")).code == 0
    assert deployment.records.pending == []


# list and show


async def test_list_shows_records_parked_keys_and_orders(deployment: Deployment) -> None:
    put(deployment, "a-1", "p-1", "p-2")
    deployment.records.parked_keys = ["p"]
    deployment.records.pending = [order(record_id("x"), "x")]

    every = await deployment.run("quarantine", "list")
    some = await deployment.data("quarantine", "list", "--partition-key", "p", "--limit", "1")

    at = "2026-02-09T11:00:00Z"
    assert every.code == 0
    assert every.out.splitlines() == [
        "RECORD        QUARANTINED           REASON           PARTITION KEY  DOCUMENT",
        *(
            f"{record_id(name)[:12]}  {at}  message-refused  {name[0]}              {name}"
            for name in ("a-1", "p-1", "p-2")
        ),
        "",
        "PARKED KEY  SINCE                 BECAUSE OF",
        f"p           {at}  {record_id('because')[:12]}",
        "",
        "ORDER TO SET ASIDE      ORDERED               PARTITION KEY  DOCUMENT",
        f"set-aside:{record_id('x')[:12]}  {at}  a              x",
        "",
        "3 in quarantine",
    ]
    assert ([each["documentId"] for each in some["records"]], some["total"]) == (["p-1"], 2)
    assert ([each["partitionKey"] for each in some["parked"]], some["orders"]) == (["p"], [])


@pytest.mark.parametrize(("limit", "shown"), [(1, "1 of 2 in"), (2, "2 in"), (3, "2 in")])
async def test_a_list_that_is_cut_says_so(deployment: Deployment, limit: int, shown: str) -> None:
    put(deployment, "a-1", "a-2")

    run = await deployment.run("quarantine", "list", "--limit", str(limit))

    assert run.out.splitlines()[-1] == f"{shown} quarantine"


async def test_a_list_is_not_endless_unless_asked(deployment: Deployment) -> None:
    put(deployment, *(f"a-{number}" for number in range(150)))

    assert len((await deployment.data("quarantine", "list"))["records"]) == 100


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many", ""])
async def test_a_limit_is_a_whole_number_above_zero(deployment: Deployment, limit: str) -> None:
    with pytest.raises(SystemExit):
        await deployment.run("quarantine", "list", "--limit", limit)


async def test_show_gives_the_whole_document_for_people_and_for_scripts(deployment: Deployment) -> None:
    (identifier,) = put(deployment, "é-1")

    people = await deployment.run("quarantine", "show", identifier[:12])
    scripts = await deployment.data("quarantine", "show", identifier[:12])

    assert scripts["record"]["document"] == event("é-1", "é")
    assert scripts["record"]["id"] == identifier
    assert people.out.splitlines()[:2] == ["{", f'  "id": "{identifier}",']
    assert '    "partitionKey": "é",' in people.out


async def test_show_says_what_is_not_there(deployment: Deployment) -> None:
    (identifier,) = put(deployment, "a-1")
    deployment.records.gone.add("a-1")

    for name in ("ffffffff", identifier):
        run = await deployment.run("quarantine", "show", name)
        assert (run.code, run.out) == (1, f"{name} is not in quarantine\n")


# discard


async def test_discard_removes_what_was_chosen_and_only_after_a_yes(deployment: Deployment) -> None:
    ids = put(deployment, *(f"a-{number}" for number in range(12)))

    refused = await deployment.run("quarantine", "discard", "--all", typed="no\n")
    assert (refused.code, refused.out, len(deployment.records.left)) == (1, "Nothing was discarded.\n", 12)
    *shown, more, question = refused.err.splitlines()
    assert [line.split()[0] for line in shown] == [identifier[:12] for identifier in ids[:10]]
    assert shown[0].endswith("  message-refused  partition key 'a', document 'a-0'")
    assert (more, question.startswith("Discard 12 record(s) for good?")) == ("and 2 more", True)

    done = await deployment.run("quarantine", "discard", *ids[:10], "ffffffff", typed="yes\n")
    assert (done.code, done.out) == (1, "discarded 10\nffffffff is not in quarantine\n")
    assert "more" not in done.err
    assert "discarded: 10 of 10\n" in done.err
    assert deployment.records.left == ["a-10", "a-11"]


async def test_a_refused_discard_is_reported_to_scripts(deployment: Deployment) -> None:
    (identifier,) = put(deployment, "a-1")

    refused = await deployment.data("quarantine", "discard", identifier, typed="no\n")
    done = await deployment.data("quarantine", "discard", identifier, typed="yes\n")

    assert [(run["exitCode"], run["refused"]) for run in (refused, done)] == [(1, True), (0, False)]
    assert [run["discarded"] for run in (refused, done)] == [[], [identifier]]


async def test_what_another_operator_has_removed_is_not_called_discarded(deployment: Deployment) -> None:
    gone, _ = put(deployment, "a-1", "a-2")
    deployment.records.gone.add("a-1")

    run = await deployment.run("quarantine", "discard", "--all", "--yes")
    again = await deployment.data("quarantine", "discard", "--all", "--yes")

    assert (run.code, run.out) == (1, f"discarded 1\n  {gone[:12]}  was removed by somebody else\n")
    assert (again["exitCode"], again["discarded"], again["gone"]) == (0, [], [])
    assert deployment.records.left == []


async def test_where_nobody_can_be_asked_only_a_yes_discards(deployment: Deployment) -> None:
    put(deployment, "a-1")

    assert (await deployment.run("quarantine", "discard", "--all")).code == 2
    assert deployment.records.left == ["a-1"]
    assert (await deployment.run("quarantine", "discard", "--all", "--yes")).code == 0
    assert deployment.records.left == []


async def test_discarding_nothing_asks_nothing(deployment: Deployment) -> None:
    run = await deployment.run("quarantine", "discard", "--all", typed="")

    assert (run.code, run.out, run.err) == (0, "discarded 0\n", "")


async def test_discarding_the_last_record_of_a_parked_key_lets_it_go_on(deployment: Deployment) -> None:
    ids = put(deployment, "p-1", "q-1", "q-2", parked=True)
    deployment.records.parked_keys += ["r"]

    run = await deployment.run("quarantine", "discard", *ids[:2], "--yes")

    assert (run.code, deployment.records.parked_keys) == (0, ["q", "r"])
    assert run.out.splitlines() == [
        "discarded 2",
        "partition key 'p' is no longer parked",
        "partition key 'q' stays parked until its other records are released",
    ]


async def test_orders_are_withdrawn_by_their_ids_and_records_beside_them_discarded(deployment: Deployment) -> None:
    ids = put(deployment, "a-1", "a-2")
    named = {"ab0000001": "ab1", "ab0000002": "ab2", "cd00000000": "cd"}
    orders = [order(digits, name) for digits, name in named.items()]
    deployment.records.pending = orders[:]

    ambiguous = await deployment.run("quarantine", "discard", "set-aside:ab000000", "--yes")
    assert (ambiguous.code, deployment.records.pending) == (2, orders)
    assert ambiguous.err.splitlines() == [
        "error: 2 orders have an id that begins with 'set-aside:ab000000': give more of it",
        "  set-aside:ab0000001  2026-02-09T11:00:00Z  pending  partition key 'a', document 'ab1'",
        "  set-aside:ab0000002  2026-02-09T11:00:00Z  pending  partition key 'a', document 'ab2'",
    ]
    refused = await deployment.run("quarantine", "discard", "set-aside:cd00000000", typed="no\n")
    assert (refused.code, deployment.records.pending) == (1, orders)
    assert refused.err.splitlines() == [
        "set-aside:cd00000000  2026-02-09T11:00:00Z  pending  partition key 'a', document 'cd'",
        "Withdraw 1 order(s)? Type yes to continue: ",
    ]
    alone = await deployment.run("quarantine", "discard", "set-aside:cd00000000", "--yes")
    assert (alone.code, alone.out) == (0, "withdrew the order set-aside:cd00000000\n")
    both = await deployment.data(
        "quarantine", "discard", "set-aside:ab0000001", ids[0], "set-aside:00000000", "--yes"
    )

    assert (both["exitCode"], both["missing"]) == (1, ["set-aside:00000000"])
    assert (both["withdrawn"], both["discarded"]) == (["set-aside:ab0000001"], [ids[0]])
    assert (deployment.records.pending, deployment.records.left) == ([orders[1]], ["a-2"])


async def test_an_order_that_does_not_exist_discards_no_record(deployment: Deployment) -> None:
    put(deployment, "a-1")

    run = await deployment.data("quarantine", "discard", "set-aside:00000000", "--yes")

    assert (run["exitCode"], run["missing"], run["discarded"]) == (1, ["set-aside:00000000"], [])
    assert deployment.records.left == ["a-1"]


async def test_discarding_all_keeps_the_orders(deployment: Deployment) -> None:
    put(deployment, "a-1")
    deployment.records.pending = [order("ab1", "x")]

    assert (await deployment.run("quarantine", "discard", "--all", "--yes")).code == 0
    assert (len(deployment.records.pending), deployment.records.left) == (1, [])


# add


async def test_an_event_that_is_being_retried_is_ordered_once(deployment: Deployment) -> None:
    deployment.commit("a-1", "a")
    deployment.outbox.reach(0)

    first = await deployment.run("quarantine", "add", "a", "a-1", "--yes")
    second = await deployment.run("quarantine", "add", "a", "a-1", "--yes")

    said = ": the relay sets the event 'a-1' aside at its next attempt\n"
    assert [(run.code, run.out) for run in (first, second)] == [
        (0, "ordered" + said),
        (0, "already ordered" + said),
    ]
    assert [(each["partitionKey"], each["eventId"]) for each in deployment.records.pending] == [("a", "a-1")]


@pytest.mark.parametrize(("passed", "shown"), [(0, False), (1, True), (None, None)])
async def test_it_says_whether_the_relay_has_passed_the_event(
    deployment: Deployment, passed: int | None, shown: bool | None
) -> None:
    deployment.commit("a-1", "a")
    deployment.outbox.reach(passed)

    data = await deployment.data("quarantine", "add", "a", "a-1", "--yes")
    people = await deployment.run("quarantine", "add", "a", "a-1", typed="yes\n")

    assert (data["exitCode"], data["found"], data["passed"], data["ordered"]) == (0, True, shown, True)
    remarks = {False: 0, True: 1, None: 1}
    assert (len(people.err.splitlines()) - 1, len(people.out.splitlines())) == (remarks[shown], 1)


@pytest.mark.parametrize(("identifier", "found"), [("nowhere", False), ("contact", True)])
async def test_what_is_no_event_of_the_outbox_is_ordered_only_by_force(
    deployment: Deployment, identifier: str, found: bool
) -> None:
    deployment.commit("contact", "a", type="contact")

    refused = await deployment.data("quarantine", "add", "a", identifier, "--yes")
    assert (refused["exitCode"], refused["found"], refused["passed"]) == (1, found, None)
    assert (refused["ordered"], deployment.records.pending) == (False, [])
    shown = await deployment.run("quarantine", "add", "a", identifier, "--yes")
    assert shown.out.endswith("--force writes the order anyway.\nNothing was ordered.\n")
    forced = await deployment.data("quarantine", "add", "a", identifier, "--yes", "--force")

    assert (forced["exitCode"], forced["ordered"], len(deployment.records.pending)) == (0, True, 1)


async def test_an_order_is_given_only_after_a_yes(deployment: Deployment) -> None:
    deployment.commit("a-1", "a")

    refused = await deployment.data("quarantine", "add", "a", "a-1", typed="no\n")
    nobody = await deployment.run("quarantine", "add", "a", "a-1")

    assert (refused["exitCode"], refused["ordered"], nobody.code) == (1, False, 2)
    assert deployment.records.pending == []


async def test_an_event_that_is_in_quarantine_already_is_not_ordered(deployment: Deployment) -> None:
    deployment.commit("a-1", "a", _lsn=5)
    (document,) = deployment.outbox.documents
    rejected = Rejected(SourceDocument.plain(document), Reason.MESSAGE_REFUSED, "", partition_key="a")
    deployment.records.pending = [holds.fulfilled_order_item("a", rejected.id, rejected.document.place)]

    run = await deployment.run("quarantine", "add", "a", "a-1", "--yes")
    data = await deployment.data("quarantine", "add", "a", "a-1", "--yes")

    assert run.out.splitlines()[-1] == "already set aside: the event 'a-1' is in quarantine, or was"
    assert (run.code, data["ordered"], data["found"]) == (0, False, True)


async def test_an_order_that_is_gone_before_the_answer_is_not_withdrawn(deployment: Deployment) -> None:
    deployment.records.pending = [order("00000000aaaa", "a-1")]
    withdraw = deployment.records.withdraw

    async def behind_another(order: Item) -> bool:
        assert await withdraw(order)
        return await withdraw(order)

    deployment.records.withdraw = behind_another  # type: ignore[method-assign]
    run = await deployment.run("quarantine", "discard", "set-aside:00000000aaaa", "--yes")

    said = "the order set-aside:00000000aaaa was carried out or withdrawn in the meantime\n"
    assert (run.code, run.out) == (1, said)
