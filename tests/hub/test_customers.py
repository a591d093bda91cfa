"""Customers kept apart, on every operation of the table: what is Bob's does not exist for Alice.

Each operation says how it is bounded, and is proved by that. What has no proof here fails: whoever adds an operation, a
parameter or a kind of bound says how it keeps customers apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest

from headrace.hub.operation import Bounded, Operation
from headrace.hub.table import OPERATIONS
from headrace.testing import FakeClock
from tests.hub.customers import BOB, Scene, scene
from tests.hub.walking import Heard, ask
from tests.support.apps import url_of

BY_NAME = {operation.name: operation for operation in OPERATIONS}

Faults = AsyncIterator[str]
Proof = Callable[[Scene, Operation], Faults]


# -- what one would learn


def tells_of_bob(scene: Scene, heard: Heard) -> set[str]:
    said = f"{heard.text}{dict(heard.headers)}"
    return {trace for trace in scene.bob.traces if trace in said}


async def differs(scene: Scene, operation: Operation, of_bob: object, of_nobody: object, **more: Any) -> Faults:
    """Whether Alice hears something else of what is Bob's than of what is not there."""
    told = {}
    for name in (of_bob, of_nobody):
        heard = await ask(scene.hub, operation, scene.alice.key, id=name, **more)
        told[name] = heard.without(name)
        if heard.status not in (404, 410):
            yield f"{name}: {heard.status}, not 404 or 410"
    if told[of_bob] != told[of_nobody]:
        yield f"of Bob's {told[of_bob]}, of nobody's {told[of_nobody]}"


def alike(id: UUID, scene: Scene) -> UUID:
    """An id of the same age that nobody has."""
    return scene.app.new_id(datetime.fromtimestamp((id.int >> 80) / 1000, UTC))


async def is_served(scene: Scene, operation: Operation, **parts: object) -> Faults:
    """Whether Alice is answered about her own: else it would prove nothing that she is refused Bob's."""
    heard = await ask(scene.hub, operation, scene.alice.key, **parts)
    if heard.status >= 500 or heard.status in (401, 403, 404, 410):
        yield f"of her own: {heard.status} {heard.text}"
    if traces := tells_of_bob(scene, heard):
        yield f"of her own, it tells of {traces}"


# -- how each kind is proved


async def job(scene: Scene, operation: Operation) -> Faults:
    for what, id in scene.bob.jobs.items():
        for headers in ({}, {"if-none-match": "*"}):
            async for fault in differs(scene, operation, id, alike(id, scene), headers=headers):
                yield f"{what}: {fault}"
    for id in scene.alice.jobs.values():
        async for fault in is_served(scene, operation, id=id):
            yield fault


async def batch(scene: Scene, operation: Operation) -> Faults:
    assert scene.bob.batch is not None
    async for fault in differs(scene, operation, scene.bob.batch, alike(scene.bob.batch, scene)):
        yield fault
    async for fault in is_served(scene, operation, id=scene.alice.batch):
        yield fault


async def operator(scene: Scene, operation: Operation) -> Faults:
    heard = await ask(scene.hub, operation, scene.alice.key)
    if heard.status != 403 or tells_of_bob(scene, heard):
        yield f"{heard}"


async def nothing(scene: Scene, operation: Operation) -> Faults:
    heard = await ask(scene.hub, operation, scene.alice.key)
    if heard.status in (401, 403) or heard.status >= 500:
        yield f"{heard}"
    if traces := tells_of_bob(scene, heard):
        yield f"it tells of {traces}"


HARMLESS = frozenset(
    [
        "status",
        "reason",
        "limit",
        "cursor",
        "suspect",
        "created_after",
        "created_before",
        "finished_after",
        "finished_before",
        "task",
        "type",
    ]
)
"""Parameters of searches that name nothing of anybody's: both customers have jobs of the same tasks."""


NAMED: dict[str, Callable[[Scene], object]] = {
    **dict.fromkeys(("customer", "customer_id", "tag", "text", "schedule"), lambda scene: BOB),
    "queue": lambda scene: f"queue-of-{BOB}",
    "parent": lambda scene: scene.bob.jobs["running"],
    "root": lambda scene: scene.bob.jobs["running"],
    "batch": lambda scene: scene.bob.batch,
    "rerun_of": lambda scene: scene.bob.jobs["failed"],
    "worker": lambda scene: scene.worker,
    "fingerprint": lambda scene: scene.bob.fingerprint,
}
"""What of Bob's the other parameters may name."""


async def found(scene: Scene, operation: Operation) -> Faults:
    if operation.method != "GET":
        async for fault in BY_HAND[operation.name](scene, operation):
            yield fault
        return
    async for fault in is_served(scene, operation):
        yield fault
    for name in set(_parameters(operation)) - HARMLESS:
        of_bob = NAMED[name](scene)
        of_nobody = scene.app.new_id() if isinstance(of_bob, UUID) else "nobody"
        told = [
            (await ask(scene.hub, operation, scene.alice.key, query={name: str(value)})).without(value)
            for value in (of_bob, of_nobody)
        ]
        if told[0] != told[1] or told[0][0] not in (200, 403):
            yield f"{name}: of Bob's {told[0]}, of nobody's {told[1]}"


def _parameters(operation: Operation) -> Iterable[str]:
    return () if operation.query is None else operation.query.__struct_encode_fields__


BY_HAND: dict[str, Proof] = {}
"""The proofs of operations that make, tell, or act on what they find: each has one of its own, by its name."""

PROOFS: dict[Bounded, Proof] = {
    "job": job,
    "batch": batch,
    "found": found,
    "operator": operator,
    "nothing": nothing,
}


def test_everything_has_a_proof() -> None:
    assert {kind for kind in get_args(Bounded) if kind not in PROOFS} == {"made", "told", "webhook"}
    for operation in OPERATIONS:
        by_hand = operation.bounded not in PROOFS or (operation.bounded == "found" and operation.method != "GET")
        assert (operation.name in BY_HAND) == by_hand, f"say how {operation.name} keeps customers apart"
        if operation.bounded == "found":
            unknown = set(_parameters(operation)) - HARMLESS - set(NAMED)
            assert not unknown, f"say what of Bob's {unknown} of {operation.name} may name"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_what_is_bobs_does_not_exist_for_alice(kind: str, tmp_path: Path) -> None:
    wrong = list[str]()
    async with scene(url_of(kind, tmp_path)) as both:
        before = await both.jobs_of_bob()
        for operation in OPERATIONS:
            proof = PROOFS.get(operation.bounded) or BY_HAND[operation.name]
            wrong += [f"{operation.name}: {fault}" async for fault in proof(both, operation)]
        assert await both.jobs_of_bob() == before
    assert wrong == []


async def test_what_is_old_is_gone_whosever_it_is(tmp_path: Path) -> None:
    clock, wrong = FakeClock(), list[str]()
    async with scene(url_of("sqlite", tmp_path), clock=clock) as both:
        clock.advance(days=400)
        id = both.bob.jobs["queued"]
        for operation in (one for one in OPERATIONS if one.bounded == "job"):
            async for fault in differs(both, operation, id, alike(id, both)):
                wrong.append(f"{operation.name}: {fault}")
            heard = await ask(both.hub, operation, both.alice.key, id=id)
            if heard.status != 410:
                wrong.append(f"{operation.name}: {heard}")
    assert wrong == []
