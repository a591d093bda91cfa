"""A store in which some jobs cannot be read, or not be shown: every list has the others, and says which these are.

Their rows are written right into the store, as an earlier version, a newer one or a fault may have left them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import apsw
import psycopg
import pytest
from click.testing import CliRunner

from headrace import App, Retry
from headrace.cli.root import cli
from headrace.core.codec.stand_in import is_stand_in
from headrace.dashboard.pages import VIEWS
from headrace.errors import Unreadable
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.hostile import HUGE
from tests.support.servers.postgres import shared

pytestmark = [pytest.mark.every_engine, pytest.mark.timeout(120)]


class Ids(NamedTuple):
    """What is in the store."""

    good: UUID
    shaped: UUID
    """Its spec has a number where a list should be, as another version may write it."""
    no_json: UUID
    """Its payload is no JSON."""
    huge: UUID
    """It requires a number that is more than any float."""
    failed: UUID
    """Its error has no message."""


def app_at(url: str) -> App:
    app = App(url)

    @app.task(retry=Retry(0))
    async def add(a: int = 1) -> int:
        return a

    return app


async def stored(url: str) -> Ids:
    async with app_at(url) as app:
        made = [await app.tasks["add"].options(tags=["x"], customer="anna").submit(n) for n in range(5)]
        await app.jobs.handle(made[4].id).resolve(error="broken")
    return Ids(*(one.id for one in made))


def spoil(url: str, ids: Ids) -> None:
    """Write what cannot be read into the store."""
    huge = json.dumps({"gpu_memory_gb": HUGE})
    if url.startswith("sqlite"):
        seq = "WHERE seq = (SELECT seq FROM jobs WHERE id = ?)"
        with closing(apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0])) as store:
            for sql, id in (
                (f"UPDATE bodies SET spec = json_set(spec, '$.tags', 5) {seq}", ids.shaped),
                (f"UPDATE bodies SET payload = 'no JSON' {seq}", ids.no_json),
                (f"UPDATE bodies SET spec = json_set(spec, '$.requires', json('{huge}')) {seq}", ids.huge),
                (f'UPDATE ends SET error = \'{{"type": "T"}}\' {seq}', ids.failed),
            ):
                store.execute(sql, (id.bytes,))
                assert store.changes() == 1, sql
        return
    schema = re.findall(r"schema=(\w+)", url)[0]
    spec = f"UPDATE {schema}.bodies SET spec = jsonb_set(spec::jsonb, '{{{{{{}}}}}}', '{{}}')::text WHERE id = %s"
    with psycopg.connect(shared().url(), autocommit=True) as server:
        for sql, id in (
            (spec.format("tags", 5), ids.shaped),
            (f"UPDATE {schema}.bodies SET payload = 'no JSON' WHERE id = %s", ids.no_json),
            (spec.format("requires", huge), ids.huge),
            (f'UPDATE {schema}.jobs SET error = \'{{"type": "T"}}\' WHERE id = %s', ids.failed),
        ):
            assert server.execute(sql.encode(), (id,)).rowcount == 1, sql


@pytest.fixture(params=["sqlite", "postgres"])
def spoiled(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Ids]:
    url = url_of(request.param, tmp_path)
    ids = asyncio.run(stored(url))
    spoil(url, ids)
    return url, ids


def said(*words: str, url: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [*words, "--url", url], prog_name="headrace")
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    assert "(unexpected;" not in done.output
    return done.stdout + done.stderr


def test_commands_show_the_others_and_say_which_it_is(spoiled: tuple[str, Ids]) -> None:
    url, ids = spoiled
    for words in (["jobs"], ["jobs", "--tag", "x"], ["jobs", "--all"], ["jobs", "--customer", "anna"]):
        lines = said(*words, url=url).splitlines()
        for id in ids:
            [line] = [line for line in lines if str(id) in line]
            assert ("cannot be shown: " in line) is (id in (ids.shaped, ids.failed)), line
    found = json.loads(said("jobs", "--json", url=url))["items"]
    assert [one["id"] for one in found] == [str(id) for id in reversed(ids)]
    assert found[3]["error"]["type"] == "cannot be shown"
    assert found[2]["payload"] == "no JSON"
    for words in (["stats"], ["queues"], ["failures"], ["failures", "--json"], ["verify"], ["tasks"], ["audit"]):
        said(*words, url=url)
    assert "5 submitted, all accounted for" in said("doctor", url=url, code=1)
    for id in (ids.good, ids.no_json, ids.huge):
        for verb in ("show", "explain", "logs"):
            said(verb, str(id), url=url)
    assert "no JSON" in said("show", str(ids.no_json), url=url)
    for verb in ("show", "explain"):
        assert f"job {ids.shaped} is stored in a way" in said(verb, str(ids.shaped), url=url, code=1)


def test_pages_and_answers_show_the_others_and_say_which_it_is(spoiled: tuple[str, Ids]) -> None:
    url, ids = spoiled

    async def look() -> None:
        async with serving(app_at(url)) as hub:
            lists = ("/jobs", "/jobs.json", "/jobs.csv", "/queues/default", "/tasks/add")
            async for path, text in looked_at(hub, ids):
                if path in lists:
                    assert str(ids.good) in text, path
                    assert str(ids.shaped) in text or path.startswith(("/queues", "/tasks")), path
            listed = (await hub.client.get("/jobs")).text
            assert listed.count("cannot be shown</b>") == 2
            assert all(f'data-key="{id}"' in listed for id in ids)
            found = (await hub.client.get("/api/jobs")).json()["items"]
            assert [one["id"] for one in found] == [str(id) for id in reversed(ids)]
            page = await hub.client.get(f"/jobs/{ids.shaped}")
            assert f"job {ids.shaped} is stored in a way that cannot be read" in page.text
            answer = (await hub.client.get(f"/api/jobs/{ids.shaped}")).json()
            assert (answer["type"].rpartition("/")[2], str(ids.shaped) in answer["detail"]) == ("unreadable", True)

    asyncio.run(look())


async def looked_at(hub: Served, ids: Ids) -> AsyncIterator[tuple[str, str]]:
    """Every page that can be shown, and its text."""
    names = {"id": str(ids.no_json), "name": "default", "task": "add"}
    for view in VIEWS:
        path = re.sub(r"\{(\w+).*?\}", lambda found: names[found[1]], view.path)
        if view.name in ("batch", "worker", "schedule", "limit", "webhook"):  # there is none
            continue
        path = "/tasks/add" if view.name == "task" else path
        page = await hub.client.get(path)
        assert page.status_code < 400, (path, page.text)
        yield path, page.text
    for path in (f"/jobs/{ids.huge}", "/metrics", "/api/stats", "/api/failures", f"/api/jobs/{ids.huge}/explain"):
        answer = await hub.client.get(path)
        assert answer.status_code == 200, (path, answer.text)


def test_feeds_and_programs_go_on(spoiled: tuple[str, Ids]) -> None:
    url, ids = spoiled

    async def follow() -> None:
        app = App(url)
        async with app, app.jobs.feed() as changes:
            page = await app.jobs.list()
            assert [one.id for one in page.items if is_stand_in(one)] == [ids.failed, ids.shaped]
            assert [None if one is None else one.id for one in await app.jobs.get_many(list(ids))] == [
                None if id in (ids.shaped, ids.failed) else id for id in ids
            ]
            with pytest.raises(Unreadable) as caught:
                await app.jobs.get(ids.shaped)
            assert caught.value.id == ids.shaped
            with pytest.raises(Unreadable):
                await app.jobs.handle(ids.shaped).cancel()
            seen = set[UUID]()
            for id in (ids.good, ids.huge):
                await app.jobs.handle(id).cancel()
                async for changed in changes:
                    seen |= {one.id for one in changed.jobs}
                    if id in seen:
                        break

    asyncio.run(follow())
