"""Rules as a function: however it looks things up, the first rule whose conditions all hold gives the answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.core.documents import SourceDocument
from relay.routes.conditions import Condition, Rule, decision

NAMES = ("action", "key", "/data/tenant")
VALUES = st.sampled_from(["a", "ab", "b", "", 1, True, 0, False, 1.0])

conditions = st.builds(
    lambda name, values, prefix: Condition(name, () if prefix else tuple(values), prefix),
    st.sampled_from(NAMES),
    st.lists(VALUES, min_size=1, max_size=2),
    st.sampled_from([None, None, "a"]),
)
data = st.fixed_dictionaries({"action": VALUES, "tenant": VALUES})
documents = st.fixed_dictionaries({"partitionKey": VALUES, "data": st.one_of(st.none(), data)})
# One field alone as well, which is looked up.
actions = st.lists(st.sampled_from(["a", "ab", "b"]), min_size=1)
of_action = st.builds(lambda values: (Condition("action", tuple(values)),), actions)
rules = st.one_of(
    st.lists(st.tuples(of_action, st.booleans())),
    st.lists(st.tuples(st.lists(conditions, max_size=2).map(tuple), st.booleans())),
)


@given(rules, st.booleans(), st.lists(documents.map(SourceDocument.plain), min_size=1))
def test_the_first_rule_that_holds_decides(
    given_rules: list[Rule], otherwise: bool, asked: list[SourceDocument]
) -> None:
    decide = decision(given_rules, otherwise=otherwise)

    for document in asked:
        holding = (answer for when, answer in given_rules if all(each.holds(document) for each in when))
        assert (decide if isinstance(decide, bool) else decide(document)) == next(holding, otherwise)


def test_nothing_is_looked_at_where_every_rule_gives_the_same_answer() -> None:
    renamed = (Condition("action", ("Renamed",)),)

    assert decision([(renamed, True), ((), True)], otherwise=False) is True
    assert decision([(renamed, False)], otherwise=False) is False
