"""How the target is chosen; what is said wrongly is refused, as it would test something else than was meant."""

from __future__ import annotations

import pytest

from tests.acceptance.target import LACKS, SUBSCRIPTION, TARGET, Target, lacking, named_target


@pytest.mark.parametrize("kind", [{}, {TARGET: ""}, {TARGET: "local"}])
def test_unless_told_otherwise_the_local_stack_is_started_whatever_else_is_set(kind: dict[str, str]) -> None:
    assert named_target({**kind, "COSMOS": "elsewhere", SUBSCRIPTION: "all"}) is None


def test_the_environment_names_the_services_and_the_subscription() -> None:
    environment = {TARGET: "environment", SUBSCRIPTION: "acceptance", "COSMOS": "there"}

    assert named_target(environment) == Target(environment, "acceptance")


@pytest.mark.parametrize(
    ("environment", "named"),
    [({TARGET: "azure", SUBSCRIPTION: "all"}, TARGET), ({TARGET: "environment"}, SUBSCRIPTION)],
    ids=["no such target", "no subscription"],
)
def test_a_target_that_cannot_be_meant_is_refused(environment: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} is"):
        named_target(environment)


def test_what_a_target_lacks_is_taken_from_the_environment() -> None:
    assert lacking({}) == frozenset()
    assert lacking({LACKS: " batch-etags  null-character"}) == {"batch-etags", "null-character"}


def test_a_feature_that_no_test_needs_cannot_be_lacking() -> None:
    with pytest.raises(ValueError, match="names batch-etag: it may name batch-etags"):
        lacking({LACKS: "batch-etag null-character"})
