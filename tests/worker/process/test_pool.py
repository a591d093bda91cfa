"""Handlers in child processes: results, progress, deaths, time-outs, cancellation."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from headrace.core.attempt import Completed, Ending, Released
from headrace.core.job import Spec
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.submission import submit
from headrace.core.status import Reason, Status
from headrace.engines.sqlite.store.presence import Presence
from headrace.worker import delayed_starts
from headrace.worker.execution.context import Context
from headrace.worker.process.pool import ProcessPool
from tests.support.apps import url_of
from tests.support.programs import process_families
from tests.support.programs.process_tasks import checks, dies, exits, spins, square, steers, waits
from tests.support.shop import Shop
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

ONCE = Retry(0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def forge(shop: Shop) -> Shop:
    """A shop that knows the process tasks."""
    for task in (square, dies, exits, spins, checks, steers, waits):
        shop.handlers[task.name] = task.handler
    return shop


async def test_a_child_outlives_what_its_handler_raises(forge: Shop) -> None:
    async with forge.worker(concurrency=1):
        first = await forge.ended(await forge.submit("square", payload={"n": 7}))
        for kind in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
            job = await forge.ended(await forge.submit("exits", payload={"kind": kind}, retry=ONCE))
            assert job.error is not None
            assert (job.status, job.error.type) == (Status.FAILED, kind)
        second = await forge.ended(await forge.submit("square", payload={"n": 8}))
    assert first.result["pid"] == second.result["pid"]
    assert first.progress is not None
    assert (first.progress.message, first.progress.details) == ("half", {"pid": first.result["pid"]})
    assert first.progress.estimated_completion == datetime(2030, 1, 2, tzinfo=UTC)
    [attempt] = (await forge.history(first.id)).attempts
    assert attempt.processing_time is not None, "as the child measured it"


def gone(pid: int) -> bool:
    """Whether the process ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # gone since, or a system without /proc, where the next look will tell
        return False


async def test_it_runs_in_another_process_which_is_used_again(forge: Shop) -> None:
    async with forge.worker(concurrency=1):
        first = await forge.ended(await forge.submit("square", payload={"n": 7}))
        second = await forge.ended(await forge.submit("square", payload={"n": 8}))
    assert (first.status, first.result["square"], second.result["square"]) == (Status.COMPLETED, 49, 64)
    assert first.result["pid"] == second.result["pid"] != os.getpid()


@pytest.mark.parametrize(("how", "words"), [("signal", "SIGKILL"), ("exit", "exit code 7")])
async def test_a_child_that_dies_is_a_failed_attempt_and_not_a_dead_worker(forge: Shop, how: str, words: str) -> None:
    async with forge.worker(concurrency=2):
        bad = await forge.ended(
            await forge.submit("dies", payload={"how": how}, retry=Retry(1, backoff="fixed", initial=0))
        )
        good = await forge.ended(await forge.submit("square", payload={"n": 3}))
    assert (bad.status, bad.reason, bad.attempt) == (Status.FAILED, Reason.RETRIES_EXHAUSTED, 2)
    assert await forge.outcomes(bad.id) == ["failed", "failed"]
    assert bad.error is not None
    assert words in bad.error.message
    assert good.result["square"] == 9


async def test_a_child_is_killed_when_its_time_is_up(forge: Shop, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    async with forge.worker(concurrency=1):
        await forge.ended(await forge.submit("square", payload={"n": 7}))  # to start a child may take longer than that
        id = await forge.submit("spins", payload={"note": str(note)}, timeout=3.0, retry=ONCE)
        job = await forge.ended(id)
        assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)
        pid = int(note.read_text())
        await until(lambda: gone(pid))


async def test_cancel_asks_a_child_first(forge: Shop, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    id = await forge.submit("checks", payload={"note": str(note)})
    async with forge.worker():
        await until(note.exists)
        await forge.cancel(id)
        job = await forge.ended(id)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.USER)
    assert await forge.outcomes(id) == ["cancelled"]


async def test_cancel_kills_a_child_that_does_not_listen(forge: Shop, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    id = await forge.submit("spins", payload={"note": str(note)})
    async with forge.worker():
        await until(note.exists)
        await until(lambda: note.read_text())
        await forge.cancel(id)
        job = await forge.ended(id)
        await until(lambda: gone(int(note.read_text())))
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.USER)


async def test_what_a_handler_may_raise_means_the_same_in_a_child(forge: Shop) -> None:
    async with forge.worker(concurrency=3):
        gave_up = await forge.ended(await forge.submit("steers", payload={"how": "give up"}))
        failed = await forge.ended(await forge.submit("steers", payload={"how": "error"}, retry=ONCE))
        snoozed = await forge.submit("steers", payload={"how": "snooze"})

        async def slept() -> bool:
            return any(one.outcome == "snoozed" for one in (await forge.history(snoozed)).attempts)

        await until(slept)
        await forge.cancel(snoozed)
        await forge.ended(snoozed)
    assert (gave_up.status, gave_up.reason) == (Status.FAILED, Reason.NON_RETRYABLE)
    assert failed.error is not None
    assert failed.error.type == "KeyError"


async def test_progress_from_a_child_is_stored(forge: Shop) -> None:
    async with forge.worker():
        job = await forge.ended(await forge.submit("square", payload={"n": 2}))
    assert job.progress is not None
    assert job.progress.percent == 100


async def test_a_child_that_submits_has_its_start_recorded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of("sqlite", tmp_path)
    monkeypatch.setenv("HEADRACE_URL", url)
    monkeypatch.setattr(delayed_starts, "WRITE_SECONDS", 3600.0)  # so that nobody else sees to it
    app, gate = process_families.app, tmp_path / "gate"

    async def begun() -> bool:
        return (await job.refresh()).status is Status.RUNNING

    with app.override(url=url):
        async with app, app.worker():
            job = await process_families.submits.submit(str(gate))
            await until(begun)
            gate.touch()
            await job.result()


async def test_a_signal_to_all_processes_is_the_workers_to_answer(forge: Shop, tmp_path: Path) -> None:
    note, gate = tmp_path / "pid", tmp_path / "gate"
    async with forge.worker():
        id = await forge.submit("waits", payload={"note": str(note), "gate": str(gate)}, retry=ONCE)
        await until(lambda: note.exists() and note.read_text())
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(int(note.read_text()), number)
        gate.touch()
        job = await forge.ended(id)
    assert (job.status, job.result) == (Status.COMPLETED, "done")


async def test_an_idle_child_that_died_is_replaced(forge: Shop) -> None:
    async with forge.worker(concurrency=1) as worker:
        first = await forge.ended(await forge.submit("square", payload={"n": 7}))
        await until(lambda: worker.stats.busy == 0)
        (child,) = worker._slots.children._idle
        os.kill(first.result["pid"], signal.SIGKILL)
        await until(lambda: not child.process.is_alive())
        second = await forge.ended(await forge.submit("square", payload={"n": 8}, retry=ONCE))
    assert (second.status, second.result["square"]) == (Status.COMPLETED, 64)
    assert second.result["pid"] != first.result["pid"]


def test_a_run_that_is_over_before_its_child_is_there_is_not_begun(tmp_path: Path) -> None:
    children, note = ProcessPool(), tmp_path / "pid"
    job = submit(UUID(int=1), Spec(task="spins", created_at=NOW), f'{{"note": "{note}"}}', NOW)
    ctx = Context(job, 1, NOW)
    ctx.stopping = "timed_out"
    try:
        assert children.run(spins.handler, ctx, job) == Released()
    finally:
        children.close()
    assert not note.exists()


def test_a_child_told_to_stop_right_behind_its_job_hears_it(tmp_path: Path) -> None:
    children, endings = ProcessPool(), list[Ending]()
    job = submit(UUID(int=1), Spec(task="checks", created_at=NOW), f'{{"note": "{tmp_path / "pid"}"}}', NOW)
    ctx = Context(job, 1, NOW)
    thread = threading.Thread(target=lambda: endings.append(children.run(checks.handler, ctx, job)))
    thread.start()
    while not any(post.child for post in list(children._busy.values())) and thread.is_alive():
        pass
    ctx.stopping = "cancelled"
    children.stop(ctx, "cancelled")
    thread.join(30)
    children.close()
    assert endings == [Released()]


def test_a_child_holds_what_is_held_for_its_worker_and_nothing_it_starts_does(tmp_path: Path) -> None:
    children, presence = ProcessPool(), Presence(tmp_path / "jobs.db")
    held = presence.attend(uuid4())
    assert held is not None
    children.attended = lambda: held
    pid = _square(children)["pid"]
    lock = os.fstat(held.descriptor or 0).st_ino
    found = [link for link in Path(f"/proc/{pid}/fd").iterdir() if os.stat(link).st_ino == lock]
    assert len(found) == 1
    flags = (Path(f"/proc/{pid}/fdinfo") / found[0].name).read_text().split("flags:")[1].split()[0]
    assert int(flags, 8) & os.O_CLOEXEC
    assert _square(children)["pid"] == pid  # used again
    again = presence.attend(uuid4())  # under a new id the worker has a new lock
    held = again
    assert _square(children)["pid"] != pid
    children.close()
    presence.let_go()


def _square(children: ProcessPool) -> dict[str, int]:
    spec = Spec(task="square", created_at=NOW)
    job = submit(uuid4(), spec, '{"n": 3}', NOW)
    ending = children.run(square.handler, Context(job, 1, NOW), job)
    assert isinstance(ending, Completed)
    result: dict[str, int] = json.loads(ending.result_text)
    return result
