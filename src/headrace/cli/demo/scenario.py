"""The scenario of the demo: what is submitted, what is done to it, and what must come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.cli.demo import app as tasks
from headrace.cli.session import USER
from headrace.core.job import Job
from headrace.core.status import Outcome, Reason, Status

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.handle import JobHandle

__all__ = ["Finding", "Scenario"]

SCENARIO_SECONDS = 45.0
"""Seconds after which the scenario is over, come what may; it takes about five."""

IMAGES = ("cat.png", "dog.png", "fox.png", "owl.png", "bee.png", "elk.png")
SUM_JOBS = 100
TICK_FIRES = 2


class Finding(NamedTuple):
    """One expectation, and what was found."""

    what: str
    expected: str
    found: str
    ok: bool


class Scenario:
    """One round of the demo."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.began = app.host.clock.now()
        self._images: list[JobHandle[Any]] = []
        self._sums: list[JobHandle[int]] = []
        self._single: dict[str, JobHandle[Any]] = {}
        self._duplicate = False
        self._ticks: list[Job] = []

    async def play(self) -> None:
        """Submit everything, cancel what never ends, and wait for the rest; give up after ``SCENARIO_SECONDS``."""
        await self._submit()
        try:
            async with asyncio.timeout(SCENARIO_SECONDS):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._cancel(self._single["endless"]))
                    group.create_task(self._await_ticks())
                    for handle in (*self._images, *self._sums, *self._single.values()):
                        group.create_task(_ended(handle))
        except TimeoutError:
            pass  # the findings show what did not end

    async def _submit(self) -> None:
        # The many come first, so that a list of the newest jobs shows the others.
        self._sums = await tasks.add.map([(number, number) for number in range(SUM_JOBS)])
        self._images = await tasks.thumbnail.map([(name,) for name in IMAGES])
        self._single = {
            "later": await tasks.later.options(delay=2.0).submit(),
            "unsteady": await tasks.unsteady.submit(),
            "doomed": await tasks.doomed.submit(),
            "patient": await tasks.patient.options(dedup="only-one").submit(),
            "endless": await tasks.endless.submit(),
        }
        again = await tasks.patient.options(dedup="only-one").submit()
        self._duplicate = again.duplicate and again.id == self._single["patient"].id

    async def _cancel(self, handle: JobHandle[Any]) -> None:
        async for job in handle.watch():
            if job.progress is not None and job.progress.percent >= 20:
                break
        await self._app.jobs.handle(handle.id).cancel(by=USER)

    async def _await_ticks(self) -> None:
        while len(self._ticks) < TICK_FIRES:
            page = await self._app.jobs.list(task="tick", status=Status.COMPLETED)
            self._ticks = [job for job in page.items if job.spec.schedule is not None]
            await asyncio.sleep(0.1)

    async def findings(self) -> list[Finding]:
        """Return what was expected of this round, and what became of it."""
        one = {name: await handle.refresh() for name, handle in self._single.items()}
        images = [await handle.refresh() for handle in self._images]
        sums = [await handle.refresh() for handle in self._sums]
        right = sum(job.result == 2 * number for number, job in enumerate(sums))
        failed = [attempt.outcome for attempt in (await self._app.jobs.history(one["unsteady"].id)).attempts]
        ledger = (await self._app.stats.counts()).ledger
        return [
            _finding("thumbnails with progress", f"{len(IMAGES)} completed", _tally(images)),
            _finding("sums in threads", f"{SUM_JOBS} right", f"{right} right"),
            _finding("a delayed job", "completed", _end(one["later"])),
            _finding("fails twice, then succeeds", "completed after 3 attempts", _tries(one["unsteady"])),
            _finding("  its failed attempts on record", "2", str(failed.count(Outcome.FAILED))),
            _finding("never succeeds", "failed (retries exhausted) after 3 attempts", _tries(one["doomed"])),
            _finding(
                "snoozes, uncharged",
                "completed, 1 charged",
                f"{_end(one['patient'])}, {one['patient'].charged} charged",
            ),
            _finding("same dedup key again", "the first job", "the first job" if self._duplicate else "a second job"),
            _finding("cancelled while running", f"cancelled ({Reason.USER})", _end(one["endless"])),
            Finding(
                "fires of the schedule", f"at least {TICK_FIRES}", str(len(self._ticks)), len(self._ticks) >= TICK_FIRES
            ),
            _finding("jobs unaccounted for", "0", str(ledger.unaccounted)),
        ]


async def _ended(handle: JobHandle[Any]) -> None:
    async for _ in handle.watch():
        pass


def _finding(what: str, expected: str, found: str) -> Finding:
    return Finding(what, expected, found, expected == found)


def _end(job: Job) -> str:
    return f"{job.status} ({job.reason.replace('_', ' ')})" if job.reason else job.status.value


def _tries(job: Job) -> str:
    return f"{_end(job)} after {job.attempt} attempts"


def _tally(jobs: Sequence[Job]) -> str:
    statuses = [job.status.value for job in jobs]
    return ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
