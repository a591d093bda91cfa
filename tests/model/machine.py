"""Does the same to the model and to another engine, step by step, and requires the same answers and histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from headrace.core.attempt import Event, History
from headrace.core.batch import Batch
from headrace.core.change import Applied, Change, KeyEffect, Verdict
from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.submission import submit
from headrace.core.lifecycle.sweep import sweep
from headrace.core.matching.customers import Customers
from headrace.core.query import Filter
from headrace.core.stats.verification import BOOKS, Invariant
from headrace.core.status import ENDED, LIVE, Status, Verb
from headrace.core.webhooks.target import EVENTS, Target
from headrace.engine import Alive, Beat, Duplicated, Inserted, Overdue, OverdueJobs, WorkerInfo
from headrace.engine.transactions import walk_async
from headrace.errors import ConfigError, TransitionRefused
from headrace.runtime.writes.duplicates import meeting
from tests.model.acts import ACTS, Act
from tests.model.sides import Make, Side, Sides

TASKS = ("mail", "bill", "größe")
QUEUES = ("default", "slow")
RULES = Rules(beat=2, start=6, accept=4, cancel_grace=2, timeout_slack=2, undeliverable_after=4)

_DRAFT = st.fixed_dictionaries(
    {
        "task": st.sampled_from(TASKS),
        "queue": st.sampled_from(QUEUES),
        "priority": st.sampled_from([10, 50, 50, 90]),
        "dedup": st.sampled_from([None, None, None, "a", "b"]),
        "dedup_for": st.sampled_from([None, None, 3.0]),
        "customer": st.sampled_from([None, None, "one", "two"]),
        "request_key": st.sampled_from([None, None, None, "r"]),
        "request_hash": st.sampled_from(["1", "1", "2"]),
        "retry": st.sampled_from([Retry(0), Retry(1), Retry(3, backoff=[0, 2])]),
        "timeout": st.sampled_from([None, 4.0]),
        "heartbeat": st.sampled_from([None, 2.0]),
        "requires": st.sampled_from([{}, {}, {"gpu": True}]),
        "webhook": st.sampled_from([None, None, None, (Target("wh_1", EVENTS), Target("wh_2", ("completed",), "one"))]),
    }
)
_PLACE = st.fixed_dictionaries(
    {
        "delay": st.sampled_from([0, 0, 0, 3]),
        "last": st.sampled_from([None, None, None, 5]),
        "waits": st.sampled_from([0, 0, 0, 0, 1]),
        "pending": st.sampled_from([False, False, False, False, True]),
        "parent": st.sampled_from([None, None, 0, 1, 2]),
        "after": st.sampled_from([(), (), (), (0,), (0, 1), (1, 3)]),
        "after_when": st.sampled_from(["succeeded", "ended"]),
        "on_parent_failure": st.sampled_from(["cancel", "fail"]),
        "batch": st.sampled_from([None, None, 0, 1]),
    }
)
_CUSTOMERS = (
    *(None,) * 4,
    Customers(),
    Customers(strict=True),
    Customers(allow=frozenset({"one"})),
    Customers(deny=frozenset({"one"}), strict=True),
)
_CHANCE = st.sampled_from([0.0, 0.25, 0.75])
_AGE = st.sampled_from([0, 0, 0, 0, 1, 3])
"""How many versions old the copy is that a decision is made from."""
_WHICH = st.integers(0, 63)


class Machine(RuleBasedStateMachine):
    """Makes of each run a random story, told to both sides."""

    def __init__(self, makers: dict[str, Make]) -> None:
        super().__init__()
        self.sides = Sides(makers, RULES)
        self.now = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
        self.jobs: list[UUID] = []
        self.gone = 0
        self.drafts: dict[UUID, Job] = {}
        self.workers: list[UUID] = []
        self.alive: dict[UUID, int] = {}
        self.claims: dict[UUID, tuple[int, dict[str, Any]]] = {}
        self.writes: list[list[list[Change]]] = []
        self.before: dict[UUID, Job] = {}
        self.touched: set[UUID] = set()
        self.freed: set[UUID] = set()
        self.inserts: list[Job] = []
        self.let_go: set[UUID] = set()
        self.writing = 1_000_000
        self.requests = 0
        self.root = self.sides.dice.new_id(self.now)
        self.batches = [self.sides.dice.new_id(self.now) for _ in range(2)]

    def teardown(self) -> None:
        try:
            self.touched.update(self.jobs)
            self.histories_are_the_same()
            self._check_books()
        finally:
            self.sides.close()

    # -- jobs come in

    @initialize(drafts=st.lists(st.tuples(_DRAFT, _PLACE), min_size=3, max_size=6))
    def it_begins(self, drafts: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self.a_worker_comes()
        self.a_worker_comes()
        for id in self.batches:
            batch = Batch(id=id, created_at=self.now, touched_at=self.now)
            self.sides.agree(lambda side, batch=batch: side.engine.jobs.insert([], self.now, batch))  # type: ignore[misc]
        self.insert(drafts)

    @rule(drafts=st.lists(st.tuples(_DRAFT, _PLACE), min_size=1, max_size=4))
    def insert(self, drafts: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        made = self._made(drafts)
        answers = self.sides.agree(lambda side: side.engine.jobs.insert(made, self.now))
        for job, answer in zip(made, answers, strict=True):
            if isinstance(answer, Inserted):
                self.jobs.append(job.id)
                self.drafts[job.id] = job

    def _made(self, drafts: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Job]:
        """New jobs of these drafts."""
        made: list[Job] = []
        for spec, place in drafts:
            kin = self._kin(place, made)
            job = submit(
                self.sides.dice.new_id(self.now),
                Spec(created_at=self.now, **spec, **kin),
                '{"n":1}',
                self.now,
                available_at=self.now + timedelta(seconds=place["delay"]),
                not_after=None if place["last"] is None else self.now + timedelta(seconds=place["last"]),
                waits=len(kin["after"]) or place["waits"],
                pending=place["pending"],
            )
            made.append(job)
        return made

    @rule(drafts=st.lists(st.tuples(_DRAFT, _PLACE), min_size=2, max_size=4), repeated=st.booleans())
    def insert_together(self, drafts: list[tuple[dict[str, Any], dict[str, Any]]], repeated: bool) -> None:
        made = self._made(drafts)
        job, others = made[0], made[1:]
        for _ in range(1 + repeated):
            self.sides.agree(lambda side: side.engine.jobs.insert([job], self.now, companions={job.id: others}))
        self._found(*made)

    def _found(self, *jobs: Job) -> None:
        """Tell of those of these jobs that are stored by now."""
        here = self.sides.agree(lambda side: side.engine.jobs.get([job.id for job in jobs]))
        for job, found in zip(jobs, here, strict=True):
            if found is not None and job.id not in self.drafts:
                self.jobs.append(job.id)
                self.drafts[job.id] = job

    def _kin(self, place: dict[str, Any], made: list[Job]) -> dict[str, Any]:
        """What a new job is to others: of those in the store, or of those that come with it."""
        young = [*self.jobs[-4:], *(job.id for job in made)]
        after = dict.fromkeys(young[-1 - n] for n in place["after"] if n < len(young))
        parent = None if place["parent"] is None or place["parent"] >= len(young) else young[-1 - place["parent"]]
        return {
            "after": tuple(after),
            "after_when": place["after_when"],
            "on_parent_failure": place["on_parent_failure"],
            "parent": parent,
            "root": None if parent is None else self.root,
            "batch": None if place["batch"] is None else self.batches[place["batch"]],
        }

    @rule()
    def tell(self) -> None:
        async def tell(side: Side) -> tuple[list[Change], list[UUID]]:
            changes, over = list[Change](), set[UUID]()
            while True:
                told = await side.engine.families.process_notes(self.now)
                changes += told.changes
                over |= {batch.id for batch in told.over}
                if not told.more:
                    return sorted(changes, key=lambda one: (one.job.id, one.job.rev)), sorted(over)

        changes, over = self.sides.agree(tell)
        self.touched.update(change.job.id for change in changes)
        self._found(*(job for change in changes for job in change.inserts))
        if over:
            id = self.sides.dice.new_id(self.now)
            job = submit(id, Spec(task=TASKS[0], created_at=self.now), '{"n":1}', self.now)
            self.sides.agree(lambda side: side.engine.families.settle(over[0], self.now, [job]))
            self._found(job)

    @rule(which=st.integers(0, 1))
    def seal(self, which: int) -> None:
        self.sides.agree(lambda side: side.engine.families.seal(self.batches[which], self.now))

    @rule(which=st.sampled_from([0, 1, 1]))
    def cancel_batch(self, which: int) -> None:
        self.sides.agree(lambda side: side.engine.families.cancel_batch(self.batches[which], self.now, "me"))

    def _check_batches(self) -> None:
        found: list[Batch | None] = self.sides.agree(lambda side: side.engine.families.batches(self.batches))
        for batch in found:
            if batch is None:
                continue
            members = [job for job in self.before.values() if job.batch == batch.id]
            gone = batch.tally.total - len(members)
            ended = sum(job.ended for job in members)
            assert 0 <= gone <= self.gone, "every job is counted once"
            assert batch.tally.ended == ended + gone, "and so is every end"

    @precondition(lambda self: self.jobs)
    @rule(which=_WHICH)
    def insert_again(self, which: int) -> None:
        draft = self.drafts[self._job(which)]
        [answer] = self.sides.agree(lambda side: side.engine.jobs.insert([draft], self.now))
        assert isinstance(answer, Inserted)

    @rule(draft=st.tuples(_DRAFT, _PLACE), key=st.sampled_from(["a", "b"]), replaces=st.booleans(), age=_AGE)
    def submit(self, draft: tuple[dict[str, Any], dict[str, Any]], key: str, replaces: bool, age: int) -> None:
        """A submit that may meet the holder of its key; ``age``: how old the copy is that is decided from at first."""
        said = draft[0] | {"dedup": key, "on_duplicate": "replace" if replaces else "return"}
        [job] = self._made([(said, draft[1])])
        self.inserts.append(job)
        self._submit(job, age)

    @precondition(lambda self: self.inserts)
    @rule(which=_WHICH)
    def submit_again(self, which: int) -> None:
        """What was submitted before may come again at any time; what was merged is not merged once more.

        What was stored and pruned since would be accepted once more, as a job that nobody remembers.
        """
        job = self.inserts[-1 - which % min(len(self.inserts), 6)]
        if job.id not in self.drafts or job.id in self.jobs:
            self._submit(job)

    def _submit(self, job: Job, age: int = 0) -> None:
        changed: list[Change] = []

        async def submit(side: Side) -> Any:
            tokens = iter(range(1, 100))

            async def execute(change: Change | None) -> Any:
                if change is None:
                    return (await side.engine.jobs.insert([job], self.now))[0]
                stamped = replace(change, id=self.writing * 100 + next(tokens))
                [verdict] = await side.engine.jobs.apply([stamped], self.now)
                if side is self.sides.all[0] and isinstance(verdict, Applied):
                    changed.append(stamped)
                return verdict

            [answer] = await side.engine.jobs.insert([job], self.now)
            if age and isinstance(answer, Duplicated) and not answer.replaced and answer.job.id in side.copies:
                answer = replace(answer, job=side.copy(answer.job.id, age))
            return await walk_async(meeting(job, answer, lambda: self.now), execute)

        self.writing += 1
        self.sides.agree(submit)
        for change in changed:
            self.touched.add(change.job.id)
            if change.verb is Verb.REPLACE and change.key is KeyEffect.RELEASE:
                self.let_go.add(change.job.id)
        self._found(job)

    # -- workers take them

    @precondition(lambda self: self.workers)
    @rule(
        which=_WHICH,
        n=st.integers(1, 4),
        free=st.integers(0, 4),
        accept=st.booleans(),
        queues=st.sampled_from([None, None, ("slow",), QUEUES]),
        tasks=st.sampled_from([TASKS, TASKS, TASKS[:1]]),
        customers=st.sampled_from(_CUSTOMERS),
    )
    def claim(self, which: int, tasks: tuple[str, ...], **wish: Any) -> None:
        self._ask(self.workers[which % len(self.workers)], tasks=frozenset(tasks), **wish)

    @rule(which=_WHICH, n=st.integers(1, 4), steps=st.lists(_WHICH, min_size=2, max_size=6), chance=_CHANCE)
    def work(self, which: int, n: int, steps: list[int], chance: float) -> None:
        """What mostly happens: a worker takes jobs and something becomes of them."""
        if not self.alive:
            self.a_worker_comes()
        worker = sorted(self.alive)[which % len(self.alive)]
        self._ask(worker, tasks=frozenset(TASKS), n=n, free=n, accept=True, queues=None, customers=None)
        for step in steps:
            self.both_stores_hold_the_same()
            held = [id for id, job in self.before.items() if job.held]
            self._act({id: (step + at, 0) for at, id in enumerate(held)}, chance)

    @precondition(lambda self: self.claims)
    @rule(which=_WHICH)
    def claim_again(self, which: int) -> None:
        self._claim(sorted(self.claims)[which % len(self.claims)])

    def _ask(self, worker: UUID, **wish: Any) -> None:
        self.requests += 1
        self.claims[worker] = (self.requests, wish)
        self._claim(worker)

    def _claim(self, worker: UUID) -> None:
        request, wish = self.claims[worker]

        async def claim(side: Side) -> Any:
            ask: ClaimRequest = await side.ask(**wish)
            if ask.customers is not None:  # whom a store has not put into line yet is for it to say
                await side.engine.jobs.promote(self.now)
                await side.engine.jobs.realign()
            try:
                return await side.engine.jobs.claim(worker, ask, request, self.now)
            except ConfigError as error:
                return error

        self.sides.agree(claim)

    # -- and much is done to them

    @precondition(lambda self: self.jobs)
    @rule(steps=st.lists(st.tuples(_WHICH, _WHICH, _AGE), min_size=1, max_size=4), chance=_CHANCE)
    def act(self, steps: list[tuple[int, int, int]], chance: float) -> None:
        self._act({self._job(which): (what, age) for which, what, age in steps}, chance)

    def _act(self, steps: dict[UUID, tuple[int, int]], chance: float) -> None:
        """To each of these jobs, do one of the things that can be done to a copy so old."""
        chosen: dict[UUID, tuple[Act, int]] = {}
        for id, (what, age) in steps.items():
            fitting = self._fitting(self.sides.all[0].copy(id, age), chance)
            if fitting:
                chosen[id] = (fitting[what % len(fitting)], age)
        batches: list[list[Change]] = []
        for side in self.sides.all:
            decided = [act(side.copy(id, age), self.now, chance, RULES) for id, (act, age) in chosen.items()]
            batches.append([change for change in decided if change is not None])
        self._write(batches)

    def _fitting(self, job: Job, chance: float) -> list[Act]:
        """What the lifecycle lets be done to this copy of a job."""
        fitting = []
        for act in ACTS.values():
            try:
                if act(job, self.now, chance, RULES) is not None:
                    fitting.append(act)
            except TransitionRefused:
                pass
        return fitting

    @precondition(lambda self: self.writes)
    @rule(which=_WHICH)
    def write_again(self, which: int) -> None:
        batches = self.writes[-1 - which % min(len(self.writes), 3)]
        self._note(batches[0], self.sides.apply(batches, self.now))

    def _write(self, batches: list[list[Change]]) -> None:
        """What inserts jobs is written alone: one of them may wait for a job that another of the changes ends, and
        whether that end is noted, or the new job finds it ended, is for the store to say."""
        alone = [place for place, change in enumerate(batches[0]) if change.inserts]
        parts = [[place for place in range(len(batches[0])) if place not in alone], *([place] for place in alone)]
        for part in parts:
            self._write_together([[batch[place] for place in part] for batch in batches])

    def _write_together(self, batches: list[list[Change]]) -> None:
        ids = [self.sides.dice.token() for _ in batches[0]]
        stamped = [[replace(change, id=id) for change, id in zip(batch, ids, strict=True)] for batch in batches]
        if ids:
            verdicts: list[Verdict] = self.sides.apply(stamped, self.now)
            self.writes.append(stamped)
            self._note(stamped[0], verdicts)

    def _note(self, changes: list[Change], verdicts: list[Verdict]) -> None:
        for change, verdict in zip(changes, verdicts, strict=True):
            self.touched.add(change.job.id)
            if isinstance(verdict, Applied) and change.verb in (Verb.RETRY, Verb.DISCARD, Verb.RESOLVE):
                self.freed.add(change.job.id)
            if isinstance(verdict, Applied) and change.verb is Verb.RETRY:
                self.let_go.discard(change.job.id)
            if isinstance(verdict, Applied):
                self._found(*change.inserts)  # deliveries to webhooks

    @rule(seconds=st.sampled_from([0.000001, 1, 2, 5, 30]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def promote(self) -> None:
        self.sides.agree(lambda side: side.engine.jobs.promote(self.now))

    async def _overdue(self, side: Side) -> OverdueJobs:
        found = await side.engine.jobs.overdue(self.now)
        return replace(found, jobs=tuple(sorted(found.jobs, key=lambda overdue: overdue.job.id)))

    @rule()
    def sweep(self) -> None:
        found: list[list[Overdue]] = [
            sorted(one.jobs, key=lambda overdue: overdue.job.id)
            for one in self.sides.run(lambda side: side.engine.jobs.overdue(self.now))
        ]
        self.sides.agree(lambda side: self._overdue(side))
        batches = []
        for side_found in found:
            changes = [
                sweep(
                    one.job,
                    self.now,
                    0.5,
                    RULES,
                    alive=one.alive,
                    unnamed=one.unnamed,
                    beside_suspect=one.beside_suspect,
                    mass_death=one.mass_death,
                )
                for one in side_found
            ]
            batches.append([change for change in changes if change is not None])
        assert all(len(batch) == len(found[0]) for batch in batches), "everything found has an answer"
        self._write(batches)

    @rule(ago=st.sampled_from([0, 2, 10]), limit=st.sampled_from([1, 1000]))
    def prune(self, ago: float, limit: int) -> None:
        moment = self.now - timedelta(seconds=ago)
        if limit == 1:  # which one goes first is the store's own business
            moment -= timedelta(days=1)
        self.gone += self.sides.agree(lambda side: side.engine.jobs.delete(dict.fromkeys(ENDED, moment), limit))

    # -- workers come and go

    @precondition(lambda self: len(self.alive) < 4)
    @rule()
    def a_worker_comes(self) -> None:
        self.now += timedelta(microseconds=1)
        id = self.sides.dice.new_id(self.now)
        info = WorkerInfo(id=id, host="h", pid=1, started_at=self.now, concurrency=4, tasks=TASKS, offers={"gpu": True})
        self.workers.append(id)
        self.alive[id] = 0
        self.sides.agree(lambda side: side.engine.workers.register(info, self.now))

    @precondition(lambda self: self.workers)
    @rule(which=_WHICH, named=st.sets(_WHICH, max_size=4), all_of_them=st.booleans())
    def beat(self, which: int, named: set[int], all_of_them: bool) -> None:
        worker = self.workers[which % len(self.workers)]
        held = tuple(self.jobs) if all_of_them else tuple({self._job(one) for one in named} if self.jobs else ())

        async def beat(side: Side) -> Any:
            answer = await side.engine.workers.beat(worker, Beat(held=held, busy=which), self.now)
            # In which order they are told is left open, and each store has a clock of its own, or none.
            if isinstance(answer, Alive):
                unknown = tuple(sorted(answer.unknown, key=lambda job: job.id))
                return replace(answer, cancels=tuple(sorted(answer.cancels)), unknown=unknown, now=None)
            return answer

        answer = self.sides.agree(beat)
        if worker in self.alive:
            self.alive[worker] += 1
            assert answer.beats == self.alive[worker]

    @precondition(lambda self: self.alive)
    @rule(which=_WHICH, how=st.sampled_from(["bury", "bury wrongly", "retire"]))
    def a_worker_goes(self, which: int, how: str) -> None:
        worker = sorted(self.alive)[which % len(self.alive)]
        if how == "retire":
            self.sides.agree(lambda side: side.engine.workers.retire(worker))
        else:
            beats = self.alive[worker] + (how == "bury wrongly")
            assert self.sides.agree(lambda side: side.engine.workers.bury(worker, beats)) is (how == "bury")
        if how != "bury wrongly":
            del self.alive[worker]

    # -- settings

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.integers(-1, 1),
        paused=st.sampled_from([False, False, True]),
        by_customer=st.sampled_from([True, True, False]),
    )
    def rule_a_queue(self, queue: str, **said: Any) -> None:
        text = msgspec.json.encode(said).decode()
        act = Event("pause", self.now, "ann") if said["paused"] else None
        assert self.sides.agree(lambda side: side.put_setting(f"queue:{queue}", text, act))
        self.sides.agree(lambda side: side.engine.documents.audit(3))

    @rule(name=st.sampled_from(["sweep", "plan"]), which=st.integers(0, 2), give=st.booleans())
    def lease(self, name: str, which: int, give: bool) -> None:
        holder = UUID(int=which + 1)

        async def lease(side: Side) -> bool:
            if give:
                await side.engine.documents.unlease(name, holder)
                return False
            return await side.engine.documents.lease(name, holder, 4, self.now) is not None

        self.sides.agree(lease)

    # -- what always holds

    def _job(self, which: int) -> UUID:
        """One of the youngest jobs: a story needs few heroes."""
        young = self.jobs[-12:]
        return young[which % len(young)]

    @invariant()
    def both_stores_hold_the_same(self) -> None:
        ids = list(self.jobs)
        found: list[Job | None] = self.sides.agree(lambda side: side.look(ids))
        here = {job.id: job for job in found if job is not None}
        for id in set(ids) - here.keys():
            self.jobs.remove(id)
        assert self.gone + len(self.jobs) == len(self.drafts), "nothing accepted is lost"
        self._check_jobs(here)
        self.before, self.freed = here, set()
        self._check_batches()
        ledger = self.sides.agree(lambda side: side.engine.records.ledger())
        ended = sum(job.ended for job in here.values())
        assert (ledger.accepted, ledger.pruned) == (len(self.drafts), self.gone)
        assert (ledger.live, ledger.ended, ledger.unaccounted) == (len(here) - ended, ended, 0)

    def _check_books(self) -> None:
        # A draft here may wait for nothing at all; what really waits is checked by the conformance suite.
        for name in BOOKS.keys() - {"waits"}:
            books: list[Invariant] = self.sides.run(lambda side, name=name: side.engine.records.verify(name))  # type: ignore[misc]
            for side, book in zip(self.sides.all, books, strict=True):
                assert not book.wrong, f"{side.name}: {book}"

    def _check_jobs(self, here: dict[UUID, Job]) -> None:
        keys = [
            (job.customer, job.task, job.dedup)
            for job in here.values()
            if job.dedup is not None and job.status in LIVE and job.id not in self.let_go
        ]
        assert len(keys) == len(set(keys)), "dedup keys are unique among live jobs of a task and a customer"
        requests = [(job.customer, job.task, job.request_key) for job in here.values() if job.request_key is not None]
        assert len(requests) == len(set(requests)), "a request has one job"
        for id, job in here.items():
            assert (job.worker is not None) == job.held
            assert job.charged <= job.max_attempts, "no attempt beyond the budget"
            old = self.before.get(id)
            if old is None:
                continue
            assert job.rev >= old.rev
            assert job.epoch >= old.epoch
            assert job.worker == old.worker or job.epoch > old.epoch, "an owner per epoch"
            told = {"progress": None, "updated_at": old.updated_at, "act_by": old.act_by}
            if replace(job, **told) != replace(old, progress=None):
                assert job.rev > old.rev, "every change but progress raises the rev"
            if job.rev == old.rev and job.act_by != old.act_by:
                assert job.heartbeat is not None, "only signs move a deadline without the rev"
            if old.status in ENDED and job.status is not old.status:
                assert id in self.freed, "an end is left only by retry, discard and resolve"

    @invariant()
    def histories_are_the_same(self) -> None:
        for id in sorted(self.touched & self.before.keys()):
            job = self.before[id]
            history: History = self.sides.agree(lambda side, id=id: side.engine.records.history(id))  # type: ignore[misc]
            closed = sum(attempt.count for attempt in history.attempts)
            assert closed + (job.status is Status.RUNNING) == job.attempt, "every attempt is on record"
            epochs = [attempt.epoch for attempt in history.attempts]
            assert len(epochs) == len(set(epochs)), "at most one finish per epoch"
        self.touched.clear()

    @rule(status=st.sampled_from(sorted(Status)), task=st.sampled_from([None, *TASKS]), whose=st.integers(0, 6))
    def ask_around(self, status: Status, task: str | None, whose: int) -> None:
        parent = self.jobs[-whose] if 0 < whose <= len(self.jobs) else None
        batch = self.batches[0] if whose == 5 else None
        wish = Filter(
            status=frozenset({status}),
            task=frozenset() if task is None else frozenset({task}),
            parent=parent,
            batch=batch,
        )
        self.sides.agree(lambda side: side.engine.records.find(wish, self.now, 1000))
        self.sides.agree(lambda side: side.engine.records.count_matching(wish, self.now))
        self.sides.agree(lambda side: side.engine.records.failures(Filter(), self.now))
        self.sides.agree(
            lambda side: side.engine.records.count(self.now), sort=lambda count: (count.queue, count.status)
        )
        self.sides.agree(lambda side: side.engine.workers.list())
