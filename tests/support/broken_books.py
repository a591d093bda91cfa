"""A store in which every book has something in it, and ways to break each of them by hand, in SQL that both engines
take."""

from __future__ import annotations

from headrace.conformance.lab import OOPS, Lab
from headrace.core.attempt import Failed
from headrace.core.batch import Batch
from headrace.core.stats.verification import BOOKS, Invariant
from headrace.core.status import Status
from headrace.core.webhooks.delivery import first_told
from headrace.core.webhooks.target import EVENTS, Target
from headrace.engine import Beat

BREAKS: tuple[tuple[str, str, str], ...] = (
    ("parts", "DELETE FROM {bodies} WHERE seq = {seq_of_live}", "it has no payload"),
    ("parts", "UPDATE {attempts} SET seq = seq + 100000", "an attempt of a job that is gone"),
    ("parts", "UPDATE {events} SET seq = seq + 100000", "an act on a job that is gone"),
    ("parts", "UPDATE {labels} SET seq = seq + 100000", "a tag or a relation of a job that is gone"),
    ("parts", "UPDATE {waits} SET child = child + 100000", "what a job waited for that is gone"),
    ("keys", "UPDATE {jobs} SET held_key = NULL", "it is live, and does not hold its dedup key"),
    ("keys", "UPDATE {jobs} SET held_key = 'x' WHERE status = 'completed'", "it has ended, and still holds"),
    ("keys", "UPDATE {jobs} SET held_key = 'x' WHERE status = 'running'", "it holds a dedup key, and has none"),
    ("lines", "UPDATE {jobs} SET subqueue = subqueue + 100000 WHERE status = 'queued'", "its subqueue is not there"),
    ("lines", "UPDATE {profiles} SET live = {false}", "workers are not told of its task"),
    (
        "lines",
        "UPDATE {profiles} SET base = 100000 WHERE task = 'keyed'",
        "workers are not told of what that stands for",
    ),
    (
        "lines",
        "UPDATE {profiles} SET base = (SELECT max(id) FROM {profiles}), live = id < (SELECT max(id) FROM {profiles})",
        "workers are not told of what that stands for",
    ),
    (
        "lines",
        "UPDATE {profiles} SET task = 'another' WHERE task = 'keyed'",
        "it stands in a subqueue of the task another",
    ),
    ("lines", "UPDATE {jobs} SET stage = 1 WHERE status = 'running'", "it is running, and not where such jobs are"),
    ("turns", "DELETE FROM {heads}", "its first queued job is"),
    ("held", "DELETE FROM {workers}", "its worker is not known"),
    ("attempts", "DELETE FROM {attempts}", "its last attempt is not on record"),
    ("attempts", "UPDATE {attempts} SET number = 99", "an attempt is on record that it has not come to"),
    ("waits", "UPDATE {jobs} SET status = 'completed', stage = 4 WHERE tied = 1", "it waits, but for nothing"),
    ("waits", "UPDATE {jobs} SET tied = 0", "others wait for it, and would not hear of its end"),
    ("batches", "UPDATE {batches} SET total = total + 1", "it counts 3 live jobs"),
    ("batches", "UPDATE {batches} SET completed = completed + 1", "it counts 1 live jobs and 1 completed"),
    (
        "messages",
        "DELETE FROM {labels} WHERE label = 'twh_1'",
        "of 1 messages to wh_1, 1 are missing",
    ),
    (
        "settings",
        "UPDATE {queues} SET paused = {true}",
        "claims read priority 7, paused, and the setting says priority 7",
    ),
    ("settings", "DELETE FROM {queues}", "claims read nothing, and the setting says priority 7"),
)
"""The book, what is done, and what is found."""


async def furnish(lab: Lab) -> None:
    """A store with something in every book; nothing in it is wrong."""
    worker = await lab.worker()
    told, others = first_told(lab.job("told", webhook=(Target("wh_1", EVENTS),)))
    await lab.engine.jobs.insert([told], lab.now, companions={told.id: others})
    await lab.put("live", dedup="d", tags=("x",))
    await lab.running(worker, "runs", timeout=None)
    for n in range(2):
        await lab.put("keyed", concurrency_key=f"k{n}")
    failed = await lab.finish(await lab.running(worker, "failed"), Failed(error=OOPS))
    assert failed.status is Status.RETRYING
    await lab.finish(await lab.running(worker, "done"))
    await lab.cancel(await lab.put("stopped"))
    batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
    first = lab.job("first", batch=batch.id)
    await lab.engine.jobs.insert([first, lab.job("second", waits=1, after=(first.id,), batch=batch.id)], lab.now, batch)
    await lab.process_notes()
    await lab.engine.documents.put_setting("queue:mail", '{"priority":7}', 0)
    await lab.engine.workers.beat(worker, Beat(), lab.now)
    # A claim that a limit matters to: it puts the keys in their places.
    assert await lab.claim(await lab.worker(), 1, tasks=("keyed",), free=1)


async def books(lab: Lab) -> dict[str, Invariant]:
    return {name: await lab.engine.records.verify(name, lab.now) for name in BOOKS}
