"""Continuous tasks: their instances are begun by the planner, and kept up by whichever worker sees a run end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.submission import submit
from headrace.core.query import Filter
from headrace.core.schedule.continuous import Instance, instance_key, instance_of, resumes_at
from headrace.core.schedule.rules import Continuous
from headrace.core.schedule.schedule import ScheduleDoc
from headrace.core.status import LIVE
from headrace.engine import MAX_BATCH, Engine, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import HeadraceError, JobNotFound, TransitionRefused, UnknownSchedule
from headrace.maintenance.schedules import PREFIX, find_schedule
from headrace.runtime.host import Host
from headrace.runtime.service import Service
from headrace.runtime.writes.writer import Writer

__all__ = ["Follower", "InstanceReconciler", "begin", "cancel_surplus"]

_log = logging.getLogger("headrace.continuous")


async def begin(writer: Writer, host: Host, doc: ScheduleDoc, ended: Mapping[int, Job | None]) -> dict[int, Job]:
    """Submit the next job of each instance after the run that ended; the live job of each, also from elsewhere."""
    rule, now = doc.rule, host.clock.now()
    if not isinstance(rule, Continuous):
        return {}
    jobs = []
    for number, last in ended.items():
        key = instance_key(Instance(doc.name, number))
        spec = replace(doc.spec, created_at=now, schedule=doc.name, fire_at=None, dedup=key)
        at = resumes_at(rule, last, now)
        jobs.append(submit(host.dice.new_id(now), spec, doc.payload_text, now, available_at=at))
    answers = await writer.inserts.insert_many(jobs)
    return {number: answer.job for number, answer in zip(ended, answers, strict=True)}


async def cancel_surplus(
    engine: Engine, writer: Writer, host: Host, name: str, instances: int = 0, *, running: bool = False
) -> bool:
    """Cancel the jobs of all but the first ``instances``, unless a worker holds them; whether all have ended. With
    ``running`` those in the hands of workers are cancelled as well."""
    rules, quiet = engine.rules, True

    def decide(job: Job, now: datetime) -> Change | None:
        return None if job.ended or (job.held and not running) else actions.cancel(job, now, rules, by="schedule")

    page = await engine.records.find(Filter(schedule=name, status=LIVE), host.clock.now(), MAX_BATCH)
    for job in page.items:
        instance = instance_of(job)
        if instance is None or instance.number < instances:
            continue
        try:
            quiet = (await writer.decide(job.id, decide)).ended and quiet
        except (JobNotFound, TransitionRefused):
            pass  # it ended in the meantime
    return quiet and page.cursor is None


class InstanceReconciler:
    """The planner's part of continuous tasks: starts instances that do not run, and ends surplus ones."""

    def __init__(self, engine: Engine, writer: Writer, host: Host) -> None:
        self.engine, self.writer, self.host = engine, writer, host
        self._runs: dict[Instance, UUID] = {}
        """The job that was last seen to be live, by instance."""
        self._quiet: dict[str, int] = {}
        """The versions of schedules that nothing runs beyond."""

    async def reconcile(
        self, setting: Setting, doc: ScheduleDoc, served: Callable[[], Awaitable[Collection[str]]]
    ) -> bool:
        """Bring the jobs in line with the schedule; whether that is all until it changes, as when it has fires.
        ``served`` are the tasks that live workers have."""
        rule = doc.rule
        continuous = isinstance(rule, Continuous)
        if not continuous and doc.generation == 1:
            return True  # it never was continuous, so there is nothing left of that
        instances = rule.instances if isinstance(rule, Continuous) and doc.active else 0
        # Read again only while a run that should be the last one is still on: it may fail, and then wait to go on.
        version = setting.rev if continuous else -doc.generation
        if self._quiet.get(setting.key) != version and await cancel_surplus(
            self.engine, self.writer, self.host, doc.name, instances
        ):
            self._quiet[setting.key] = version
        ended = await self._ended(doc.name, instances)
        if ended and (doc.source == "dynamic" or doc.task in await served()):
            for number, job in (await begin(self.writer, self.host, doc, ended)).items():
                self._runs[Instance(doc.name, number)] = job.id
        return not instances and self._quiet.get(setting.key) == version

    async def _ended(self, name: str, instances: int) -> dict[int, Job | None]:
        """The instances that are not known to run, with their last job if that is known."""
        found: dict[int, Job | None] = {}
        known = {number: self._runs.get(Instance(name, number)) for number in range(instances)}
        ids = [id for id in known.values() if id is not None]
        jobs = {job.id: job for job in await self.engine.jobs.get(ids) if job is not None} if ids else {}
        for number, id in known.items():
            job = None if id is None else jobs.get(id)
            if job is None or job.ended:
                found[number] = job
        return found


class Follower(Service):
    """Beside every worker: follows up on the ends of runs written here, so that none waits for the planner. Nothing
    depends on it but speed: the planner begins what it failed to."""

    def __init__(self, engine: Engine, writer: Writer, host: Host) -> None:
        super().__init__()
        self.engine, self.writer, self.host = engine, writer, host
        self._ends: dict[str, list[Job]] = {}
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Begin."""
        if self._task is None:
            self._wake = asyncio.Event()  # like the one of the service: made anew for the loop it runs on
        await super().start()

    async def stop(self) -> None:
        """End after what is being done."""
        self.stopping.set()
        self._wake.set()
        await super().stop()

    async def main(self) -> None:
        """Follow until stopped; what has ended by then is still followed up."""
        self.writer.followers.append(self._ended)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                ends, self._ends = self._ends, {}
                await asyncio.gather(*(self._follow(name, jobs) for name, jobs in ends.items()))
                if self.stopping.is_set() and not self._ends:
                    return
        finally:
            self.writer.followers.remove(self._ended)

    def _ended(self, job: Job) -> None:
        """Note that a job of a schedule ended; only those that keep another from beginning matter."""
        name = job.spec.schedule
        if name is not None and job.spec.dedup is not None:
            self._ends.setdefault(name, []).append(job)
            self._wake.set()

    async def _follow(self, name: str, jobs: Iterable[Job]) -> None:
        try:
            doc = await find_schedule(self.engine, name)
            if doc.waiting is not None:
                self.engine.bus.send(Hint(Topic.SETTINGS, (PREFIX + name,)))  # for the planner
            if not isinstance(doc.rule, Continuous) or not doc.active:
                return
            ended: dict[int, Job | None] = {}
            for job in jobs:
                instance = instance_of(job)
                if instance is not None and instance.number < doc.rule.instances:
                    ended[instance.number] = job
            if ended:
                await begin(self.writer, self.host, doc, ended)
        except UnknownSchedule:
            pass  # deleted: its last run was the last
        except HeadraceError as error:
            _log.info("schedule %s: the next run is left to the planner: %s", name, error)
        except Exception:  # the worker goes on; so must this
            _log.exception("schedule %s: the next run is left to the planner", name)
