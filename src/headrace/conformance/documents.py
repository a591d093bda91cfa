"""Documents: profiles, settings under compare-and-set, leased duties."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

from headrace.conformance.jobs.contents import STRANGE
from headrace.conformance.lab import Lab, Part
from headrace.core.attempt import Event
from headrace.core.audit import Audited
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.duty import CLOCK_SLACK, DutyLease, taken
from headrace.core.matching.match import Profile
from headrace.engine import MAX_BATCH, MAX_PROFILES, Claimed, Inserted, Refused, Setting
from headrace.errors import HeadraceError

__all__ = ["Documents"]


class Documents(Part):
    """What the small verbs promise."""

    # -- profiles

    async def test_a_profile_is_a_pair_of_task_and_requirements(self, lab: Lab) -> None:
        before = await lab.engine.documents.profiles()
        assert before.profiles == ()
        await lab.put("a")
        await lab.put("a", requires={"x": 1, "y": [2, STRANGE]})
        await lab.put("b")
        first = await lab.engine.documents.profiles()
        await lab.put("a", requires={"y": [2, STRANGE], "x": 1})
        await lab.put("a", queue="other", priority=1)
        assert await lab.engine.documents.profiles() == first
        assert first.rev > before.rev
        assert len({profile.id for profile in first.profiles}) == 3
        pairs = [(profile.task, profile.requires) for profile in first.profiles]
        for pair in [("a", {}), ("a", {"x": 1, "y": [2, STRANGE]}), ("b", {})]:
            assert pair in pairs

    async def test_a_profile_keeps_its_id(self, lab: Lab) -> None:
        def of(profiles: tuple[Profile, ...]) -> dict[str, int]:
            return {profile.task: profile.id for profile in profiles}

        await lab.put("a")
        first = await lab.engine.documents.profiles()
        await lab.put("b")
        second = await lab.engine.documents.profiles()
        assert second.rev > first.rev
        assert of(second.profiles)["a"] == of(first.profiles)["a"]

    async def test_a_claim_tells_of_new_profiles_and_settings(self, lab: Lab, worker: UUID) -> None:

        async def revs() -> tuple[int, int]:
            claimed = await lab.claimed(worker)
            return claimed.profiles_rev, claimed.settings_rev

        before = await revs()
        assert await revs() == before
        await lab.put("never seen")
        after = await revs()
        assert after[0] > before[0]
        assert after[0] == (await lab.engine.documents.profiles()).rev
        written = await lab.set("task:x", "1", 0)
        changed = await revs()
        assert changed[1] > after[1]
        await lab.engine.documents.put_setting("task:x", None, written.rev)
        assert (await revs())[1] > changed[1]

    async def test_requirements_tell_jobs_of_one_task_apart(self, lab: Lab, worker: UUID) -> None:
        plain, special = await lab.put("a"), await lab.put("a", requires={"gpu": True})
        assert {job.id for job in await lab.claim(worker)} == {plain.id, special.id}
        ids = {tuple(profile.requires): profile.id for profile in (await lab.engine.documents.profiles()).profiles}
        assert ids.keys() == {(), ("gpu",)}

    async def test_a_profile_too_many_is_refused_until_one_is_free(self, lab: Lab, worker: UUID) -> None:
        for first in range(0, MAX_PROFILES, MAX_BATCH):
            jobs = await lab.put_all(*(lab.job("a", requires={"n": first + n}) for n in range(MAX_BATCH)))
        before, odd, after = await lab.insert(lab.job("a", requires={"n": 1}), lab.job("new"), lab.job("a"))
        assert isinstance(before, Inserted)
        assert isinstance(odd, Refused)
        assert isinstance(odd.error, HeadraceError)
        assert isinstance(after, Refused), "no requirements are a profile too"
        either = await lab.engine.jobs.insert([lab.job("a", requires={"n": 1}), lab.job("new")], lab.now, whole=True)
        assert [isinstance(answer, Refused) for answer in either] == [True] * 2, "all or nothing"
        assert (await lab.engine.records.ledger()).accepted == MAX_PROFILES + 1
        ended = [await lab.cancel(job) for job in jobs[:2]]
        fresh = await lab.put("new")
        assert [job.id for job in await lab.claim(worker, tasks=("new",))] == [fresh.id]
        for job in ended:  # its profile may have been collected meanwhile
            back = await lab.do(actions.retry(job, lab.now))
            assert back.requires == job.requires
        profiles = await lab.engine.documents.profiles()
        wanted = {profile.id for profile in profiles.profiles if profile.requires in [job.requires for job in ended]}
        claimed = await lab.engine.jobs.claim(
            worker, ClaimRequest(n=9, free=9, profiles=frozenset(wanted)), 99, lab.now
        )
        assert isinstance(claimed, Claimed)
        assert {job.id for job in claimed.jobs} == {job.id for job in ended}

    # -- settings

    async def test_a_setting_is_written_read_and_deleted(self, lab: Lab) -> None:
        assert await lab.engine.documents.settings() == []
        text = '{"k": "' + STRANGE[:30].replace('"', "") + '"}'
        written = await lab.set("schedule:a b", text, 0)
        assert (written.key, written.value) == ("schedule:a b", text)
        assert written.rev > 0
        assert await lab.engine.documents.settings() == [written]
        again = await lab.set("schedule:a b", "2", written.rev)
        assert again.rev > written.rev
        assert await lab.engine.documents.settings() == [again]
        gone = await lab.set("schedule:a b", None, again.rev)
        assert gone.key == "schedule:a b"
        assert await lab.engine.documents.settings() == []

    async def test_settings_are_listed_by_key_and_prefix(self, lab: Lab) -> None:
        keys = ["queue:b", "queue:a", "queue", "task:queue:", "queue:A", "queue_x", "q%", "queue:ä"]
        for key in keys:
            await lab.engine.documents.put_setting(key, "{}", 0)
        assert [setting.key for setting in await lab.engine.documents.settings()] == sorted(keys)
        assert [setting.key for setting in await lab.engine.documents.settings("queue:")] == [
            "queue:A",
            "queue:a",
            "queue:b",
            "queue:ä",
        ]
        assert [setting.key for setting in await lab.engine.documents.settings("queue_")] == ["queue_x"]
        assert [setting.key for setting in await lab.engine.documents.settings("q%")] == ["q%"]

    async def test_who_expects_wrongly_writes_nothing(self, lab: Lab) -> None:
        assert await lab.engine.documents.put_setting("k", "1", 7) is None
        assert await lab.engine.documents.put_setting("k", None, 7) is None
        first = await lab.set("k", "1", 0)
        assert await lab.engine.documents.put_setting("k", "2", 0) is None
        assert await lab.engine.documents.put_setting("k", "2", first.rev + 1) is None
        second = await lab.set("k", "2", first.rev)
        assert await lab.engine.documents.put_setting("k", "3", first.rev) is None
        assert await lab.engine.documents.put_setting("k", None, first.rev) is None
        assert await lab.engine.documents.settings() == [Setting("k", "2", second.rev)]

    async def test_a_rev_never_comes_again(self, lab: Lab) -> None:
        revs = []
        for _ in range(3):
            written = await lab.set("k", "1", 0)
            revs.append(written.rev)
            await lab.engine.documents.put_setting("k", None, written.rev)
        assert len(set(revs)) == 3

    async def test_of_many_writers_one_is_first(self, lab: Lab) -> None:
        answers = await asyncio.gather(*(lab.engine.documents.put_setting("k", f"{n}", 0) for n in range(8)))
        [written] = [answer for answer in answers if answer is not None]
        assert await lab.engine.documents.settings() == [written]

    # -- the audit of settings

    async def test_acts_on_settings_are_on_record(self, lab: Lab) -> None:
        documents = lab.engine.documents
        assert await documents.audit(10) == []
        written = await lab.set("queue:a", "1", 0, Event("set", lab.now, "ann", details={"n": ["ü"]}))
        same = await lab.set("queue:a", "1", written.rev, Event("trigger", lab.later(1)))
        assert await documents.put_setting("queue:a", "2", written.rev, Event("late", lab.now, "eve")) is None
        await documents.put_setting("queue:b", "1", 0)
        assert await documents.put_setting("queue:a", None, same.rev, Event("forget", lab.now, "bob")) is not None
        newest = [
            Audited(key="queue:a", verb="forget", at=lab.now, by="bob"),
            Audited(key="queue:a", verb="trigger", at=lab.now),
            Audited(key="queue:a", verb="set", at=lab.at(-1), by="ann", details={"n": ["ü"]}),
        ]
        assert await documents.audit(10) == newest
        assert await documents.audit(2) == newest[:2]

    # -- leases

    async def test_a_duty_has_one_holder(self, lab: Lab) -> None:
        one, two = lab.new_id(), lab.new_id()
        token = await lab.engine.documents.lease("sweep", one, 10, lab.now)
        assert token is not None
        assert await lab.engine.documents.lease("sweep", two, 10, lab.now) is None
        assert await lab.engine.documents.lease("prune", two, 10, lab.now) is not None
        lab.later(9)
        assert await lab.engine.documents.lease("sweep", one, 10, lab.now) == token, "renewed"
        lab.later(9.9)
        assert await lab.engine.documents.lease("sweep", two, 10, lab.now) is None

    async def test_a_lapsed_duty_goes_to_the_next_with_a_higher_token(self, lab: Lab) -> None:
        one, two = lab.new_id(), lab.new_id()
        first = await lab.engine.documents.lease("sweep", one, 10, lab.now)
        lab.later(10)
        second = await lab.engine.documents.lease("sweep", two, 10, lab.now)
        assert first is not None
        assert second is not None
        assert second > first
        assert await lab.engine.documents.lease("sweep", one, 10, lab.now) is None
        lab.later(10)
        third = await lab.engine.documents.lease("sweep", one, 10, lab.now)
        assert third is not None
        assert third > second

    async def test_who_has_a_duty_is_told(self, lab: Lab) -> None:
        one, documents = lab.new_id(), lab.engine.documents
        assert await documents.holder("sweep", lab.now) is None
        await documents.lease("sweep", one, 10, lab.now)
        assert await documents.holder("sweep", lab.now) == one
        assert await documents.holder("plan", lab.now) is None
        assert await documents.holder("sweep", lab.at(9.9)) == one
        assert await documents.holder("sweep", lab.at(10)) is None
        await documents.unlease("sweep", one)
        assert await documents.holder("sweep", lab.now) is None

    async def test_a_lease_that_ends_later_than_it_can_have_been_taken_for_is_void(self, lab: Lab) -> None:
        one, two, three = lab.new_id(), lab.new_id(), lab.new_id()
        first = await lab.engine.documents.lease("sweep", one, 10, lab.at(3600))  # by a clock that is an hour ahead
        second = await lab.engine.documents.lease("sweep", two, 10, lab.now)
        assert first is not None
        assert second == first + 1
        assert await lab.engine.documents.lease("sweep", three, 10, lab.at(-1)) is None, "clocks are never quite alike"
        # As core.lifecycle.duty says, to the microsecond.
        for until in (CLOCK_SLACK, CLOCK_SLACK + timedelta(microseconds=1)):
            lease = DutyLease(second, two, lab.at(10))
            now = lab.now - until
            expected = taken(lease, three, 10, now)
            assert await lab.engine.documents.lease("sweep", three, 10, now) == (expected and expected.token)

    async def test_a_lease_of_those_who_take_it_for_longer_is_not_void(self, lab: Lab) -> None:
        one, two = lab.new_id(), lab.new_id()
        assert await lab.engine.documents.lease("sweep", one, 30, lab.now) is not None
        assert await lab.engine.documents.lease("sweep", two, 5, lab.now, 30) is None
        lab.later(29.9)
        assert await lab.engine.documents.lease("sweep", two, 5, lab.now, 30) is None
        lab.later(0.1)
        assert await lab.engine.documents.lease("sweep", two, 5, lab.now, 30) is not None
        assert await lab.engine.documents.holder("sweep", lab.at(4.9)) == two
        assert await lab.engine.documents.holder("sweep", lab.at(5)) is None

    async def test_a_duty_given_back_is_free(self, lab: Lab) -> None:
        one, two = lab.new_id(), lab.new_id()
        first = await lab.engine.documents.lease("sweep", one, 10, lab.now)
        await lab.engine.documents.unlease("sweep", two)
        assert await lab.engine.documents.lease("sweep", two, 10, lab.now) is None
        await lab.engine.documents.unlease("sweep", one)
        second = await lab.engine.documents.lease("sweep", two, 10, lab.now)
        assert first is not None
        assert second is not None
        assert second > first
        await lab.engine.documents.unlease("nothing", one)

    async def test_of_many_at_once_one_gets_the_duty(self, lab: Lab) -> None:
        tokens = await asyncio.gather(*(lab.engine.documents.lease("d", lab.new_id(), 10, lab.now) for _ in range(8)))
        assert sum(token is not None for token in tokens) == 1
