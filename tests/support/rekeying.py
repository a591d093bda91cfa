"""A store as the version before customers had keys of their own left it, and what must hold once it is migrated."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.conformance.lab import Lab
from headrace.core import customers
from headrace.core.customers import dedup_of, turn_of
from headrace.core.job import Job
from headrace.core.limits.rule import group_of
from headrace.core.status import Status
from headrace.engine import Duplicated, Inserted

NAMES = ("a", "ab", "1:a", '"quoted"', "back\\slash", "tab\tnew\nline", "\x01\x1f\x7f", "é\N{GRINNING FACE}", "x" * 300)
PLAIN = ("\x1f1:ak", "\x1f\x1fk", "\x1f\x1f\x1fk", "plain")
"""Of no customer: among them what the key "k" of the customer "a" becomes, and what another of them becomes."""
KEYS = ("k", "bk", "\x1fk", "k" * 300, "\N{GRINNING FACE}" * 512)


async def fill(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs with keys, as the version before kept them: all customers shared them; one is held."""
    worker = await lab.worker()
    await lab.engine.documents.put_setting("limit:turns", '{"max_per_key":1,"rates":["slow"]}', 0)
    await lab.engine.documents.put_setting("rate:slow", '{"limit":1,"per":3600,"kind":"fixed","keyed":true}', 0)
    with monkeypatch.context() as patch:
        patch.setattr(customers, "own", lambda customer, key: key)
        keyed = [*zip(NAMES[: len(KEYS)], KEYS, strict=True), *((name, f"of {name}") for name in NAMES[len(KEYS) :])]
        jobs = await lab.put_all(*(lab.job("dedup", customer=name, dedup=key) for name, key in keyed))
        plain = [lab.job("dedup", dedup=key) for key in PLAIN]
        turns = [lab.job("turns", customer=name, concurrency_key="k") for name in NAMES for _ in range(2)]
        jobs += await lab.put_all(*plain, lab.job("turns", concurrency_key="k"), *turns)
        [held] = await lab.claim(worker, tasks=("turns",))
        ended = await lab.put("turns", customer="gone", concurrency_key="k")
        jobs += [held, await lab.cancel(ended)]
    return [await lab.get(job) for job in jobs]


async def check(lab: Lab, jobs: list[Job]) -> None:
    """Every key is its customer's own: dedup keys are held, concurrency keys counted, rates spent and turns taken."""
    for job in jobs:
        assert await lab.get(job) == job
        if job.spec.dedup is not None:
            customer, dedup = job.customer, job.spec.dedup
            assert await lab.insert(lab.job("dedup", customer=customer, dedup=dedup)) == [Duplicated(job)]
            [other] = await lab.insert(lab.job("dedup", customer="nobody" if customer is None else None, dedup=dedup))
            assert isinstance(other, Inserted)
    usage = await lab.engine.records.usage()
    held = next(job for job in jobs if job.status is Status.ACCEPTED)
    assert {bound[2]: n for bound, n in usage.held.items() if bound[0] == "key"} == {group_of(held).key: 1}
    worker = await lab.worker()
    assert await lab.claim(worker, tasks=("turns",)) == [], "what was spent by all was spent by each"
    lab.now += timedelta(seconds=7200)
    first = await lab.claim(worker, tasks=("turns",))
    waiting = {turn_of(job.spec) for job in jobs if job.task == "turns" and job.status is Status.QUEUED}
    assert [turn_of(job.spec) for job in first] == sorted(
        waiting - {turn_of(held.spec)}, key=lambda turn: min(job.seq for job in jobs if turn_of(job.spec) == turn)
    )
    assert len({dedup_of(job.spec) for job in jobs if job.spec.dedup}) == len([job for job in jobs if job.spec.dedup])
