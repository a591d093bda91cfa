"""What others do to a store, at its edges, does not keep a session from its work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.engine import Alive, Beat
from headrace.engines.postgres.store.pool import COLD, Pool
from headrace.errors import Unavailable
from tests.engines.postgres.conftest import Connect
from tests.support.servers.postgres import Server


async def test_a_beat_does_not_wait_for_a_job_that_a_transaction_completes(lab: Lab, connect: Connect) -> None:
    worker = await lab.worker()
    held, other = await lab.running(worker, "a"), await lab.running(worker, "b")
    lab.later(30)
    assert isinstance(await lab.engine.workers.beat(worker, Beat(), lab.now), Alive)
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await lab.transactions.enlist(user).run(
        await lab.transactions.applying(lab.stamp(lab.end(held, Completed())), lab.now)
    )
    told = await lab.engine.workers.beat(worker, Beat(held=(held.id,)), lab.now)
    assert isinstance(told, Alive)
    assert [job.id for job in told.unknown] == [other.id]
    await transaction.rollback()
    # The other was counted, twice now.
    assert [(one.job.id, one.unnamed) for one in (await lab.engine.jobs.overdue(lab.now)).jobs if one.unnamed > 1] == [
        (other.id, 2)
    ]
    assert isinstance(await lab.engine.workers.beat(worker, Beat(held=(held.id, other.id)), lab.now), Alive)
    assert not [one for one in (await lab.engine.jobs.overdue(lab.now)).jobs if one.unnamed]


@pytest.mark.parametrize("priority", [-(2**31), 2**31 - 1])
async def test_a_queue_of_any_priority_is_claimed_from(lab: Lab, priority: int) -> None:
    await lab.engine.documents.put_setting("queue:far", f'{{"priority":{priority}}}', 0)
    far, near = await lab.put(queue="far"), await lab.put(queue="near")
    order = [far.id, near.id] if priority > 0 else [near.id, far.id]
    assert [job.id for job in await lab.claim(await lab.worker())] == order


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    """A server with little room for notifications."""
    server = Server.start(tmp_path, fsync="off", max_notify_queue_pages="64")
    yield server
    server.stop()


async def test_a_full_queue_of_notifications_is_refused_for_now(small: Server) -> None:
    deaf, loud = await asyncpg.connect(small.url()), await asyncpg.connect(small.url())
    await deaf.execute("LISTEN x")
    await deaf.execute("BEGIN")
    with pytest.raises(asyncpg.ProgramLimitExceededError):
        await loud.execute("SELECT count(pg_notify('y', repeat('a', 7000) || g)) FROM generate_series(1, 1000) g")
    pool = Pool(small.url(), size=1, settings=COLD, pgbouncer=False)
    await pool.open()
    for _ in range(2):
        with pytest.raises(Unavailable, match="hints") as caught:
            await pool.fetch("SELECT pg_notify('y', 'a')")
        assert caught.value.outcome == "refused"
    await deaf.execute("COMMIT")
    await pool.close()
    await loud.close()
    await deaf.close()
