"""The workers of an App in this process."""

from __future__ import annotations

import gc

from headrace.worker.worker import Worker
from tests.support.apps import Sums


async def test_every_worker_is_told_of_before_and_after_somebody_asks() -> None:
    sums, told = Sums(), list[Worker]()
    async with sums.app as app:
        first = app.worker()
        app.workers.local.on_each(told.append)
        second = app.worker()
        assert told == [first, second] == app.workers.local.all()


async def test_a_worker_that_nobody_uses_is_forgotten() -> None:
    sums = Sums()
    async with sums.app as app:
        kept, gone = app.worker(), app.worker()
        assert app.workers.local.all() == [kept, gone]
        del gone
        gc.collect()
        assert app.workers.local.all() == [kept]
