"""How the target is chosen. An invalid choice is rejected."""

from __future__ import annotations

import pytest

from tests.acceptance.target import LACKS, SUBSCRIPTION, TARGET, Target, lacking, named_target


@pytest.mark.parametrize("kind", [{}, {TARGET: ""}, {TARGET: "local"}])
def test_by_default_the_emulators_are_started_whatever_else_is_set(kind: dict[str, str]) -> None:
    assert named_target({**kind, "COSMOS": "elsewhere", SUBSCRIPTION: "all"}) is None


def test_the_environment_names_the_services_and_the_subscription() -> None:
    environment = {TARGET: "environment", SUBSCRIPTION: "acceptance", "COSMOS": "there"}

    assert named_target(environment) == Target(environment, "acceptance")


@pytest.mark.parametrize(
    ("environment", "named"),
    [({TARGET: "azure", SUBSCRIPTION: "all"}, TARGET), ({TARGET: "environment"}, SUBSCRIPTION)],
    ids=["no such target", "no subscription"],
)
def test_an_unknown_target_or_a_missing_subscription_is_rejected(environment: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} is"):
        named_target(environment)


def test_the_environment_names_the_features_a_target_lacks() -> None:
    assert lacking({}) == frozenset()
    assert lacking({LACKS: " batch-etags  null-character"}) == {"batch-etags", "null-character"}


def test_an_unknown_feature_is_rejected() -> None:
    with pytest.raises(ValueError, match="names batch-etag: use only batch-etags"):
        lacking({LACKS: "batch-etag null-character"})
