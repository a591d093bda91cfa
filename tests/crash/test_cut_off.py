"""Workers behind hubs are cut off: who is not back in time is dead, and whoever lives keeps its jobs.

No lease ends here. So who is buried was cut off, and the log says so.
"""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App
from headrace.core.status import Outcome, Status
from headrace.engine import WorkerRow
from headrace.logs import short
from tests.crash.app import app, waits_for
from tests.crash.test_remote import Store, opened, post
from tests.crash.test_remote import url as url
from tests.hub.process import Running, started
from tests.hub.remote_workers.distant import Distant, distant
from tests.support.crew import crew, is_free
from tests.support.living import BY_PROOF, are_living
from tests.support.servers.proxy import Proxy
from tests.support.until import until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

BEAT, LONG, GRACE = 0.4, 90.0, 8.0
ENVIRONMENT = {"HEADRACE_BEAT": str(BEAT), "HEADRACE_LEASE": str(LONG)}
CUT_OFF = "is dead: cut off from its hub"


def hub(folder: Path, url: str, *flags: str, grace: float = GRACE) -> Any:
    words = "hub", "--url", url, "--no-webhooks", "--worker-lease", f"{LONG}s", "--worker-grace", f"{grace}s", *flags
    return started(folder, *words, environment=ENVIRONMENT)


async def row_of(app: App, id: str) -> WorkerRow | None:
    """A living worker, as the store has it."""
    rows = {str(row.info.id): row for row in await app.session.engine.workers.list() if row.alive}
    return rows.get(id)


async def is_cut_off(store: Store, id: str) -> bool:
    return (row := await row_of(store.app, id)) is not None and row.grace is not None


async def is_buried(store: Store, id: str) -> bool:
    return await row_of(store.app, id) is None


async def joined(store: Store, worker: Distant) -> tuple[dict[str, Any], UUID]:
    """A worker with a job that it has started: how it registered, and which job."""
    id = await store.submit(worker.name)
    known = await worker.says("register_worker", "worker_registered", tasks=[worker.name])
    await worker.claims()
    await worker.about("start_job", "job_started")
    return known, id


async def test_the_job_of_a_worker_that_is_killed_does_not_wait_for_its_lease(url: str, tmp_path: Path) -> None:
    with hub(tmp_path, url, grace=2.0) as one:
        async with opened(url) as store:
            async with distant(one.address, "dies") as worker:
                known, id = await joined(store, worker)
                killed_at = datetime.now(UTC)
            await store.until(id, Status.QUEUED)
            [lost] = (await store.app.jobs.history(id)).attempts
            assert lost.outcome is Outcome.LOST
            assert lost.finished_at >= killed_at + timedelta(seconds=2.0), "not before its grace is over"
            assert await is_buried(store, known["worker"])
            back = await post(one, "register_worker", worker_id="dies", token=known["token"], max_concurrent_jobs=1)
            assert back.status_code == 410, "it is told that it is dead"
            async with distant(one.address, "heir") as heir:
                await heir.says("register_worker", "worker_registered", tasks=["dies"])
                await heir.claims()
                await heir.about("complete_job", "job_completed", result=1)
            await store.settled(id)
        one.end()
    assert CUT_OFF in str(one.events)


async def test_the_job_of_a_remote_engine_that_is_killed_does_not_wait_for_its_lease(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with (
        hub(tmp_path, url, grace=2.0) as one,
        crew(f"hub+{one.address}", tmp_path, beat=BEAT, lease=LONG) as workers,
        app.override(url=url),
    ):
        async with app:
            first = workers.hire()
            handle = await waits_for.submit(str(gate), str(note))
            await until(lambda: _is_running(app, handle.id), within=90)
            [row] = await app.workers.list()
            assert row.proof is not None
            assert row.proof.startswith("hub ")
            workers.kill(first)
            second = workers.hire()
            await until(lambda: note.read_text().split()[1::2] == [str(first.pid), str(second.pid)], within=90)
            gate.touch()
            assert await handle.result(timeout=60) == 2
            workers.stop()
        one.end()
    # Who sweeps may be the hub, or the worker that came.
    assert CUT_OFF in f"{one.events}{workers.said(second)}"


async def _is_running(app: App, id: UUID) -> bool:
    return (await app.jobs.get(id)).status is Status.RUNNING


async def test_who_roams_is_slow_or_connects_again_keeps_its_job(url: str, tmp_path: Path) -> None:
    names = ("roams", "reconnects", "by_http", "has_two", "slow", "leaves")
    with hub(tmp_path, url) as one, hub(tmp_path, url) as other:
        async with opened(url) as store, Proxy(one.address) as proxy, AsyncExitStack() as stack:

            async def worker(name: str, address: str) -> Distant:
                return await stack.enter_async_context(distant(address, name))

            cut = {name: await worker(name, proxy.url) for name in names[:4]}
            held = {name: await joined(store, one) for name, one in cut.items()}
            slow, leaves = await worker("slow", one.address), await worker("leaves", one.address)
            held["slow"], held["leaves"] = await joined(store, slow), await joined(store, leaves)
            # They are connected before, so that it does not matter how long that takes.
            again = {
                "roams": await worker("roams", other.address),
                "reconnects": await worker("reconnects", one.address),
            }
            two = again["has_two"] = await worker("has_two", one.address)
            await _registers(two, held)
            slow.freeze()
            await leaves.leaves()
            proxy.cut()
            for name in ("roams", "reconnects", "by_http"):
                await until(lambda name=name: is_cut_off(store, held[name][0]["worker"]), what=name)  # type: ignore[misc]
            await _registers(again["roams"], held)
            await _registers(again["reconnects"], held)
            heard = await post(other, "heartbeat", token=held["by_http"][0]["token"])
            assert heard.json()["registered"]
            # By the time that this one is buried, the others would have been, too.
            async with distant(one.address, "killed") as killed:
                dead, lost = await joined(store, killed)
            await until(lambda: is_buried(store, dead["worker"]), within=90)
            slow.thaw()
            for name, worker_known in ((name, held[name][0]) for name in names):
                assert await row_of(store.app, worker_known["worker"]) is not None, name
            again["slow"] = slow
            for name in names:
                done = again.get(name)
                if done is None:
                    lease = (cut.get(name) or leaves).job["lease"]
                    assert (await post(other, "complete_job", lease=lease, result=name)).status_code == 200, name
                else:
                    done.job = done.job or cut[name].job
                    await done.about("complete_job", "job_completed", result=name)
            async with distant(one.address, "heir") as heir:
                await heir.says("register_worker", "worker_registered", tasks=["killed"])
                await heir.claims()
                await heir.about("complete_job", "job_completed", result=1)
            histories = await store.settled(*(id for _, id in held.values()), lost)
    for name in names:
        assert [one.outcome for one in histories[held[name][1]].attempts] == [Outcome.COMPLETED], name
    assert [one.outcome for one in histories[lost].attempts] == [Outcome.LOST, Outcome.COMPLETED]


async def _registers(worker: Distant, held: dict[str, tuple[dict[str, Any], UUID]]) -> None:
    known = held[worker.name][0]
    again = await worker.says("register_worker", "worker_registered", tasks=[worker.name], token=known["token"])
    assert again["worker"] == known["worker"]


async def test_a_hub_that_was_frozen_takes_nobody_for_dead_who_is_at_another(url: str, tmp_path: Path) -> None:
    with hub(tmp_path, url) as one, hub(tmp_path, url) as other:
        async with opened(url) as store, Proxy(one.address) as proxy:
            async with (
                distant(proxy.url, "roams") as before,
                distant(other.address, "roams") as after,
                distant(one.address, "killed") as killed,
            ):
                held = {"roams": await joined(store, before)}
                dead, _ = await joined(store, killed)
                await _frozen_at_rest(one, url)
                proxy.cut()
                await _registers(after, held)
                one.process.send_signal(signal.SIGCONT)
                # It hears of the end of this one after that of the other.
                await killed.killed()
                await until(lambda: is_buried(store, dead["worker"]), within=90)
                assert await row_of(store.app, held["roams"][0]["worker"]) is not None
                after.job = before.job
                await after.about("complete_job", "job_completed", result=1)
            history = await store.app.jobs.history(held["roams"][1])
    assert [one.outcome for one in history.attempts] == [Outcome.COMPLETED]


async def _frozen_at_rest(one: Running, url: str) -> None:
    """Stop a hub in its tracks, at a moment when it holds no lock of the store."""

    def rests() -> bool:
        one.process.send_signal(signal.SIGSTOP)
        if is_free(url):
            return True
        one.process.send_signal(signal.SIGCONT)
        return False

    await until(rests)


async def test_a_hub_and_a_worker_that_are_killed_together_are_missed_at_once(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with (
        started(tmp_path, "hub", "--url", url) as one,
        crew(url, tmp_path, beat=10.0, lease=30.0) as workers,
        app.override(url=url),
    ):
        async with app:
            await until(lambda: _has_said_how(app), within=60)
            await until(app.workers.list, within=60)
            [sender] = await app.workers.list()
            first = workers.hire()
            handle = await waits_for.submit(str(gate), str(note))
            await until(lambda: _is_running(app, handle.id), within=90)
            second = workers.hire()
            await until(lambda: are_living(app, first, second), within=90)
            one.process.kill()
            workers.kill(first)
            await until(lambda: note.read_text().split()[1::2] == [str(first.pid), str(second.pid)], within=90)
            gate.touch()
            assert await handle.result(timeout=60) == 2
            id = next(row.info.id for row in await app.workers.list() if row.info.pid == second.pid)
            await until(lambda: _has_duties(app, id), within=60)
            said = workers.said(second)
            assert f"pid {one.process.pid}) is dead: its process has ended; its duties are free" in said
            assert f"worker {short(sender.info.id)}" in said
            assert said.count(BY_PROOF) == 3, "the hub, what delivers beside it, and the worker"
            assert await app.session.engine.documents.settings("holder:") == []


async def _has_said_how(app: App) -> bool:
    """Whether the hub has its duties, and says how its death can be proved."""
    held = await app.session.engine.documents.holder("duty:sweeper", app.host.clock.now())
    return [one.key for one in await app.session.engine.documents.settings("holder:")] == [f"holder:{held}"]


async def _has_duties(app: App, id: UUID) -> bool:
    now = app.host.clock.now()
    names = ("sweeper", "planner", "pruner")
    return {await app.session.engine.documents.holder(f"duty:{name}", now) for name in names} == {id}
