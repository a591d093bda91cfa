"""The backend for ``django.tasks``, which came with Django 6."""

from __future__ import annotations

import json
from pathlib import Path

import django
import pytest

from tests.contrib.django.sites import Site

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(django.VERSION < (6,), reason="django.tasks needs Django 6, and that Python 3.12"),
]

ENQUEUE = """
import asyncio
from datetime import timedelta
from django.utils import timezone
from shop.tasks import add, attempt, broken, told
ids = [add.enqueue(1, b=2).id, asyncio.run(attempt.aenqueue()).id, broken.enqueue().id]
ids.append(add.using(priority=-100, run_after=timezone.now() + timedelta(hours=1)).enqueue(5).id)
with transaction.atomic():
    later = told.enqueue()
    assert later.enqueued_at is None
    assert later.id not in open("signals.txt").read(), "who is told before the commit is told of what may never be"
later.refresh()
assert later.enqueued_at is not None
print(json.dumps([*ids, later.id]))
"""

LOOK = """
from shop.tasks import add, attempt, broken, told
from django.tasks.exceptions import TaskResultMismatch
ids = {ids}
sum, context, failed, waits, last = [
    task.get_result(id) for task, id in zip((add, attempt, broken, add, told), ids, strict=True)
]
try:
    add.get_result(ids[1])
except TaskResultMismatch:
    pass
print(json.dumps([
    [sum.status, sum.return_value, sum.args, sum.kwargs, sum.attempts, sum.is_finished],
    context.return_value,
    [failed.status, failed.attempts, [one.exception_class.__name__ for one in failed.errors]],
    [waits.status, waits.task.priority, waits.task.run_after is not None, waits.attempts],
    last.status,
]))
"""

PRIORITY = """
from headrace.contrib.django import project_app
app = project_app()
print(json.dumps([app.wait(app.jobs.get(id)).priority for id in {ids}]))
"""


def test_enqueued_tasks_are_jobs(tmp_path: Path) -> None:
    site = Site(tmp_path)
    ids = site.script(ENQUEUE)
    assert site.script(PRIORITY.format(ids=ids)) == [50, 50, 50, 0, 50]
    for _ in range(20):
        site.manage("headrace", "worker", "--burst")
        found = site.script(LOOK.format(ids=ids))
        if found[2][0] == "FAILED":
            break
    assert found == [
        ["SUCCESSFUL", 3, [1], {"b": 2}, 1, True],
        [ids[1], 1],
        ["FAILED", 2, ["Broken", "Broken"]],
        ["READY", -100, True, 0],
        "SUCCESSFUL",
    ]
    _signals_were_sent(tmp_path / "signals.txt", ids)


def _signals_were_sent(file: Path, ids: list[str]) -> None:
    """Each by the backend, when Django says that it is: stored, begun, ended for good."""
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert {one[1] for one in told} == {"HeadraceBackend"}
    by_id = {id: [(name, status, over) for name, _, about, status, over in told if about == id] for id in ids}
    begun = [("enqueued", "READY", False), ("started", "RUNNING", False)]
    done = [*begun, ("finished", "SUCCESSFUL", True)]
    assert (
        by_id
        == {
            ids[0]: done,
            ids[1]: done,
            ids[2]: [*begun, begun[1], ("finished", "FAILED", True)],  # it is tried twice
            ids[3]: begun[:1],
            ids[4]: done,
        }
    )
