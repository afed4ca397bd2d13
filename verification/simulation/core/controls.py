"""Safeguards and assumptions that can be taken out. Without each, universes violate a guarantee.

Those of `verification/spec/Relay.tla` have the same names here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from relay.backends.cosmos import source
from relay.core import verdict
from relay.core.errors import PublishError
from relay.core.evidence import AcceptedLedger
from relay.core.fence import Clearance, Fence
from relay.core.pipeline import Relay
from relay.servicebus.key_sender import KeySender
from verification.journal.checker import Wrong
from verification.simulation.controls import Control, go_on
from verification.simulation.core import container
from verification.simulation.core.leases import Leases
from verification.simulation.topic import Topic

_handle = Relay.handle


async def _succeed(self: Relay[Any], *batch: Any) -> Any:
    try:
        return await _handle(self, *batch)
    except PublishError:
        return None


def _one_by_one(changes: Sequence[container.Document], lsn: int) -> Iterator[list[container.Document]]:
    for document in changes:
        if document["_lsn"] > lsn:
            yield [document]


async def _clear_all(self: Fence, received: Any, **more: Any) -> Clearance:
    return Clearance(0.0, math.inf, owned=received.owned)


def _at_once(refusal: Any, history: Any, policy: Any) -> verdict.Verdict:
    return verdict.set_aside(verdict.reason_of(refusal))


CONTROLS = {
    "WithholdsCheckpoint": Control(lambda: patch.object(Relay, "handle", _succeed), Wrong.MISSING, 3),
    "StopsBehindFailure": Control(
        lambda: patch.object(KeySender, "send_in_order", go_on), Wrong.OUT_OF_ORDER, 10, first=15
    ),
    "SortsCommits": Control(
        lambda: patch.object(source, "in_commit_order", lambda documents: documents), Wrong.OUT_OF_ORDER, 3
    ),
    "RemembersAccepted": Control(
        lambda: patch.object(AcceptedLedger, "holds", lambda *_: False), Wrong.DUPLICATED, 100, first=10
    ),
    "ComparesOldEvents": Control(lambda: patch.object(Fence, "clear", _clear_all), Wrong.DUPLICATED, 100, first=9),
    "ClearanceExpires": Control(
        lambda: patch.object(Clearance, "check", lambda *_: None), Wrong.DUPLICATED, 300, first=420
    ),
    "TopicDetectsDuplicates": Control(lambda: patch.object(Topic, "_known", lambda *_: None), Wrong.DUPLICATED, 3),
    "PagesEndWithCommits": Control(
        lambda: patch.object(container, "_commits_behind", _one_by_one), Wrong.MISSING, 10, first=3
    ),
    "OwnersCheckpoint": Control(
        lambda: patch.object(Leases, "_owns", lambda *_: True), Wrong.DUPLICATED, 100, first=9
    ),
    "OwnersDivide": Control(
        lambda: patch.object(Leases, "_may_divide", lambda *_: True), Wrong.DUPLICATED, 1, first=300_000_080
    ),
    "JudgesByEvidence": Control(
        lambda: patch.object(verdict, "after_refusal", _at_once), Wrong.SET_ASIDE_THOUGH_SOUND, 10, first=6
    ),
}
