"""Shared access signatures, made by the SDK and by others."""

from __future__ import annotations

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from outbox_emulators.servicebus.auth import KEY_NAME, Claim, SharedAccess
from outbox_emulators.servicebus.authorization import AuthorizationRule, Right
from outbox_emulators.servicebus.errors import Unauthorized

NOW = 1_700_000_000
KEY = "the key"
AUDIENCE = "sb://127.0.0.1:5672/orders"


@pytest.fixture
def access() -> SharedAccess:
    rules = {
        "": AuthorizationRule(KEY_NAME, Right.ANY, KEY, "the second key"),
        "orders": AuthorizationRule("listener", Right.LISTEN, "for orders", "for orders too"),
    }
    return SharedAccess(
        lambda path: [(owner, rule) for owner, rule in rules.items() if owner in ("", path)], lambda: NOW
    )


def token(audience: str = AUDIENCE, key: str = KEY, name: str = KEY_NAME, expiry: int = NOW + 60) -> str:
    made: str = generate_sas_token(audience, name, key, expiry)  # type: ignore[no-untyped-call]
    return made


def test_a_token_of_the_sdk_grants_its_entity(access: SharedAccess) -> None:
    assert access.check(token(), AUDIENCE) == Claim("orders", NOW + 60)
    assert access.check(token(key="the second key"), AUDIENCE) == Claim("orders", NOW + 60)


def test_the_key_of_an_entity_grants_its_rights_and_nothing_elsewhere(access: SharedAccess) -> None:
    for key in ("for orders", "for orders too"):
        assert access.check(token(key=key, name="listener"), AUDIENCE) == Claim("orders", NOW + 60, Right.LISTEN)
        [claim] = access.check_key("listener", key, ["orders", "others"])
        assert (claim.path, claim.rights) == ("orders", Right.LISTEN)
    others = AUDIENCE.replace("orders", "others")
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        access.check(token(others, "for orders", "listener"), others)
    with pytest.raises(Unauthorized, match="InvalidSignature"):
        access.check_key("listener", "for orders", ["others"])


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["Read"], "'Read' is no right"),
        ([], "at least one"),
        (["Manage", "Send"], "needs Send and Listen"),
    ],
)
def test_rights_that_are_not_valid_are_refused(names: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Right.parse(names)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (token(key="another"), "InvalidSignature"),
        (token(name="Nobody"), "InvalidSignature"),
        (token().replace("orders", "others"), "InvalidSignature"),
        (token().replace(f"se={NOW + 60}", f"se={NOW + 6000}"), "InvalidSignature"),
        (token(expiry=NOW), "ExpiredToken"),
        (token("sb://127.0.0.1:5672/other"), "InvalidAudience"),
        ("eyJhbGciOi.a.b", "MalformedToken"),
        ("SharedAccessSignature sr=x&sig=y", "MalformedToken"),
        ("", "MalformedToken"),
    ],
)
def test_any_other_is_refused_with_the_reason(access: SharedAccess, bad: str, complaint: str) -> None:
    with pytest.raises(Unauthorized, match=complaint):
        access.check(bad, AUDIENCE)


def test_a_claim_covers_its_path_and_all_below_and_nothing_beside() -> None:
    claim = Claim("Orders", NOW)

    assert claim.covers("orders")
    assert claim.covers("orders/$management")
    assert not claim.covers("orders2")
    assert not claim.covers("topic/Subscriptions/orders")
    assert Claim("", NOW).covers("anything")
