"""A Django project with jobs: its App, ``manage.py headrace``, transactions, and connections around handlers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contrib.django.sites import Site, postgres

pytestmark = pytest.mark.timeout(120)

SUBMITS = """
from shop.tasks import send
from headrace.contrib.django import project_app, submit
app = project_app()
count = lambda: app.wait(app.jobs.count())
try:
    with transaction.atomic():
        submit(send.draft(0))
        raise KeyError
except KeyError:
    seen = [count()]
with transaction.atomic():
    id = submit(send.draft(1))
    seen.append(count())
seen.append(count())
submit(send.draft(2))
print(json.dumps([*seen, count(), str(id)]))
"""


def test_jobs_are_stored_with_the_commit_and_run_by_the_worker_of_the_project(tmp_path: Path) -> None:
    site = Site(tmp_path)
    *seen, id = site.script(SUBMITS)
    assert seen == [0, 0, 1, 2]
    site.manage("headrace", "worker", "--burst", "--concurrency", "1")
    shown = json.loads(site.manage("headrace", "show", id, "--json"))
    assert shown["status"] == "completed"
    results = site.script(
        "from headrace.contrib.django import project_app\napp = project_app()\n"
        "print(json.dumps([job.result for job in app.wait(app.jobs.list()).items]))"
    )
    assert sorted(one[2] for one in results) == [41, 42]
    assert {one[1] for one in results} == {False}, "no run begins with the connection of another"
    assert "nonsense" in site.manage("headrace", "nonsense", code=2), "the exit code is that of headrace"


def test_in_the_database_of_the_project_a_job_is_part_of_the_transaction(tmp_path: Path) -> None:
    site = Site(tmp_path, postgres())
    site.manage("headrace", "migrate")
    *seen, id = site.script(SUBMITS)
    assert seen == [0, 0, 1, 2]
    inside = """
from shop.tasks import send
from headrace.contrib.django import submit
with transaction.atomic():
    id = submit(send.draft(3))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM headrace.jobs WHERE id = %s", [id])
        print(json.dumps(cursor.fetchone()[0]))
"""
    assert site.script(inside) == 1, "the row is there before the commit, for this transaction alone"
    site.manage("headrace", "worker", "--burst")
    assert json.loads(site.manage("headrace", "show", id, "--json"))["status"] == "completed"


ELSEWHERE = """
from django.db import connections
other = {"NAME": "other.db", "ENGINE": "django.db.backends.sqlite3"}
connections.databases["other"] = {**connections.databases["default"], **other}
from shop.tasks import send
from headrace.contrib.django import project_app, submit
app = project_app()
count = lambda: app.wait(app.jobs.count())
seen = []
try:
    with transaction.atomic(using="other"):
        submit(send.draft(0), using="other")
        seen.append(count())
        raise KeyError
except KeyError:
    seen.append(count())
with transaction.atomic(using="other"):
    submit(send.draft(1), using="other")
    seen.append(count())
seen.append(count())
with transaction.atomic():
    with transaction.atomic(using="other"):
        submit(send.draft(2), using="other")
        seen.append(count())
    seen.append(count())
    with transaction.atomic(using="other"):
        submit(send.draft(3))
        seen.append(count())
    seen.append(count())
seen.append(count())
submit(send.draft(4), using="other")
print(json.dumps([*seen, count()]))
"""


@pytest.mark.parametrize("shared", [False, True])
def test_the_transaction_that_is_meant_may_be_that_of_another_database(tmp_path: Path, shared: bool) -> None:
    site = Site(tmp_path, postgres() if shared else None)
    site.manage("headrace", "migrate")
    assert site.script(ELSEWHERE) == [0, 0, 0, 1, 1, 2, 2, 2, 3, 4]


WRONG = {
    "{'DATABASE': 'default'}": "is sqlite, and jobs can be in PostgreSQL",
    "{'URL': 'memory://', 'QUEUE': 'x'}": "unknown setting 'QUEUE'",
    "{'APP': 'shop.settings.USE_TZ'}": "APP must name an App",
    "{'APP': 'x.y', 'URL': 'memory://'}": "URL is said where the App is made",
    "None": "the settings have no HEADRACE",
}


def test_settings_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    said = Site(tmp_path).script(
        f"""
from django.conf import settings
from headrace.contrib.django import project_app
from headrace.errors import ConfigError
said = []
for settings.HEADRACE in [{", ".join(WRONG)}]:
    try:
        project_app()
    except ConfigError as error:
        said.append(str(error))
print(json.dumps(said))
"""
    )
    assert len(said) == len(WRONG)
    for text, part in zip(said, WRONG.values(), strict=True):
        assert part in text
