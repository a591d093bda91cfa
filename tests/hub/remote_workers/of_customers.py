"""What a customer's worker has, for tests that keep customers apart."""

from __future__ import annotations

from typing import Any

from tests.hub.customers import Scene
from tests.hub.remote_workers.working import work

__all__ = ["lease_of_bob", "ready_for_work", "token_of_bob"]

_BUSY = "work"


async def ready_for_work(scene: Scene) -> str:
    """A queue in which a job of each customer waits, that of Bob first."""
    await scene.app.queues.set(_BUSY, by_customer=True)
    for whose in (scene.bob, scene.alice):
        await scene.app.submit("quick", {"note": whose.name}, customer=whose.name, queue=_BUSY)
    return _BUSY


async def _bob(scene: Scene, message: str, **fields: Any) -> dict[str, Any]:
    headers = scene.hub.client.headers
    headers["authorization"] = f"Bearer {scene.bob.key}"
    try:
        return await work(scene.hub.client, message, **fields)
    finally:
        del headers["authorization"]


async def token_of_bob(scene: Scene) -> str:
    """The token of a worker of Bob's."""
    token: str = (await _bob(scene, "register_worker", worker_id="bob", tasks=["quick"]))["token"]
    return token


async def lease_of_bob(scene: Scene) -> dict[str, Any]:
    """A job of Bob's that his worker was given."""
    queue = await ready_for_work(scene)
    return await _bob(scene, "claim_job", worker_id="bob", tasks=["quick"], queues=[queue], wait=20)
