"""Every field of the API is given what no honest client sends; then every page, command and metric is looked at.

Whatever is refused is refused as the client's mistake; whatever is kept is shown, spelled out, and breaks nothing.
``HEADRACE_EXAMPLES``, as ``make fuzz`` sets it, looks at every job and not only at some, on both engines.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from click.testing import CliRunner

from headrace import App
from headrace.cli.root import cli
from headrace.dashboard.pages import VIEWS
from headrace.errors import ConfigError
from headrace.hub import HubOptions
from headrace.hub.operations import OPERATIONS
from headrace.hub.server.operation import Operation
from headrace.logs import JsonFormatter, TextFormatter
from tests.hub.serving import Served, serving
from tests.hub.walking import path_of
from tests.support.apps import url_of
from tests.support.hostile import DEEP, HUGE, NUMBERS, SPELLED, STRUCTURES, TEXTS, WICKED, raw_in
from tests.support.seed import seed

pytestmark = pytest.mark.timeout(900)

ALL = bool(os.environ.get("HEADRACE_EXAMPLES"))
ENGINES = ("sqlite", "postgres") if ALL else (("sqlite", "postgres")[seed() % 2],)
"""One of them takes a minute of two processors: which one a run of all tests takes, its seed says."""
LOOKED_AT = 1000 if ALL else 5
"""Jobs of which every page and command is looked at."""
VALUES = (*TEXTS, *NUMBERS, *STRUCTURES) if ALL else (*TEXTS[:2], *NUMBERS[:2], *STRUCTURES[1:4], *STRUCTURES[-3:-1])
INNER = 1 if ALL else 2
"""What is within an example, such as a filter, is given every other value."""
TASK = "evil"
WORKER = "tester"
LEASED = tuple(one for one in OPERATIONS if one.bounded == "leased")
LAST = ("complete_job", "fail_job", "snooze_job", "release_job")
"""After these another lease is needed."""


class Log(logging.Handler):
    """What a hub would write, as text, as JSON, and as an App that has set up its own logging."""

    def __init__(self) -> None:
        super().__init__()
        self.texts, self.documents, self.faults = list[str](), list[str](), list[str]()
        self.plain = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.plain.append(logging.Formatter("%(levelname)s %(message)s").format(record))
        self.texts.append(TextFormatter().format(record))
        self.documents.append(JsonFormatter().format(record))
        if record.exc_info:
            self.faults.append(self.texts[-1])


# -- asking for everything with everything


def written(value: Any) -> bytes:
    """JSON, or what nearly is: half characters and numbers that are none are written as they come."""
    return json.dumps(value, ensure_ascii=True).encode()


def fields_of(kind: Any) -> list[str]:
    """The names that a body, or the parameters of an operation, may have."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [one.encode_name for one in msgspec.structs.fields(kind)]
    arms = getattr(kind, "__args__", ())
    return list(dict.fromkeys(name for arm in arms for name in fields_of(arm)))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in an example something stands."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*path, key)
        yield from leaves(member, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy that has this value there."""
    if not path:
        return value
    made = dict(document) if isinstance(document, dict) else list(document)
    first, *rest = path
    inner = made.get(first, {}) if isinstance(made, dict) else made[first]
    made[first] = changed(inner, tuple(rest), value) if rest else value
    return made


def bodies(operation: Operation, fixed: dict[str, Any]) -> Iterator[bytes]:
    """The example with each of its places, and each field it could have, set to each wicked value."""
    example = operation.example if isinstance(operation.example, dict) else {}
    example = {**example, **{name: one for name, one in fixed.items() if name in fields_of(operation.body)}}
    places = dict.fromkeys([*leaves(example), *((name,) for name in fields_of(operation.body))])
    for path in places:
        if path[0] in fixed and path[0] != "worker_id":
            continue
        for value in VALUES if len(path) == 1 else VALUES[::INNER]:
            yield written(changed(example, path, value))


class Attack:
    """Somebody with a key who tries everything."""

    def __init__(self, hub: Served, key: str) -> None:
        self.hub, self.asked = hub, 0
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self.lease: dict[str, str] | None = None

    async def send(self, operation: Operation, path: str, **more: Any) -> int:
        """One request; what it is answered with is never a fault."""
        self.asked += 1
        answer = await self.hub.client.request(operation.method, path, headers=self.headers, **more)
        assert answer.status_code < 500, (operation.name, path[:200], str(more)[:300], answer.text[:500])
        return answer.status_code

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        """A request that is good."""
        answer = await self.hub.client.post(path, headers=self.headers, content=written(body))
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    async def held(self) -> dict[str, str]:
        """A job that this worker runs, with its lease."""
        await self.post("/api/jobs", task=TASK, payload={"a": WICKED}, queue="work", max_retries=0)
        tasks, slots = [TASK], 1000
        job = await self.post(
            "/api/work/claim_job", worker_id=WORKER, tasks=tasks, queues=["work"], max_concurrent_jobs=slots
        )
        fixed = {"job_id": job["job_id"], "lease": job["lease"], "worker_id": WORKER}
        await self.post("/api/work/start_job", **fixed)
        return fixed

    async def everything(self, job: str) -> None:
        """All operations, all fields, all values."""
        for operation in OPERATIONS:
            if operation.name in (
                "job_events",
                "batch_events",
                "feed",
            ):  # streams: they take what is in the address, looked at below
                continue
            await self._paths(operation)
            await self._parameters(operation, job)
            if operation.body is not None or operation.raw:
                await self._bodies(operation, job)

    async def _bodies(self, operation: Operation, job: str) -> None:
        leased = operation in LEASED
        if leased:
            self.lease = await self.held()
        for written_once in bodies(operation, self.lease or {} if leased else {}):
            body = written_once
            if leased:
                self.lease = self.lease or await self.held()
                for name in ("lease", "job_id"):
                    now = f'"{name}": "{self.lease[name]}"'.encode()
                    body = re.sub(rb'"%s": "[^"]*"' % name.encode(), now, body)
            status = await self.send(operation, path_of(operation, id=job, **NAMED), content=body)
            if operation.name in LAST and status < 300:
                self.lease = None

    async def _parameters(self, operation: Operation, job: str) -> None:
        for name in fields_of(operation.query):
            for value in (*TEXTS, *NUMBERS)[:: 1 if ALL else 3]:
                said = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else str(value)
                if len(said) > 5000:
                    said = said[:5000]
                path = f"{path_of(operation, id=job, **NAMED)}?{name}={quote(said)}"
                await self.send(operation, path)

    async def _paths(self, operation: Operation) -> None:
        if "{" not in operation.path:
            return
        for text in (WICKED, "x" * 5000, "\0", " ", ".."):
            parts = dict.fromkeys(operation.path_examples, text)
            await self.send(operation, path_of(operation, **parts), content=written(operation.example or {}))


NAMED = {"task": TASK, "name": "work"}


# -- the walk


async def walk(hub: Served, key: str, jobs: list[str]) -> None:
    """Every page, every good question of the API, and the metrics."""
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=hub.address, timeout=30, trust_env=False) as browser:
        form = await browser.get("/login")
        data = dict(re.findall(r'name="(token|next)" value="([^"]*)"', form.text))
        login = await browser.post("/login", data={**data, "key": key}, headers={"origin": hub.address})
        assert login.status_code == 303, login.text
        await pages(browser, hub, jobs)
    for operation in OPERATIONS:
        if operation.method == "GET" and not operation.live:
            for id in jobs if "{id}" in operation.path else ("",):
                answer = await hub.client.get(path_of(operation, **{**NAMED, "id": id}), headers=headers)
                assert answer.status_code < 500, (operation.name, answer.text)
    metrics = await hub.client.get("/metrics", headers=headers)
    assert metrics.status_code == 200
    assert list(raw_in(metrics.text)) == []


async def pages(browser: httpx2.AsyncClient, hub: Served, jobs: list[str]) -> None:
    """Every page, of every name there is."""
    workers = [str(row.info.id) for row in await hub.app.workers.list()]
    names = {
        "name": ["work", "default", TASK, WICKED],
        "task": [TASK, WICKED],
        "id": [*jobs, *workers],
    }
    for view in VIEWS:
        part = re.search(r"\{(\w+)", view.path)
        for value in names[part[1]] if part else [""]:
            path = re.sub(r"\{.*?\}", quote(value, safe=""), view.path)
            for query in ("", f"?customer={quote(WICKED)}&text={quote(WICKED)}&q={quote(WICKED)}"):
                page = await browser.get(path + query)
                assert page.status_code < 500, (path, page.text)
                assert page.status_code != 303, (path, page.headers)
                if "html" in page.headers["content-type"]:
                    assert list(raw_in(page.text))[:3] == [], path
                    assert "<script>alert" not in page.text, path


READS = (
    *("jobs", "jobs --all", "jobs --count", "batches", "failures", "charts", "audit", "stats", "queues", "limits"),
    *("rates", "schedules", "tasks", "workers", "keys", "keys list", "webhooks", "webhooks list", "doctor", "verify"),
    *("webhooks deliveries", "migrate"),
)
OF_A_JOB = ("show", "explain", "logs")


def commands(url: str, jobs: list[str], workers: list[str], ended: list[str]) -> Iterator[list[str]]:
    """Every command that shows something, for people and for programs."""
    read = [one.split() for one in READS]
    read += [[verb, id] for verb in OF_A_JOB for id in jobs]
    read += [["watch", id] for id in ended]
    read += [["explain", "--worker", id] for id in workers]
    for words in read:
        yield [*words, "--url", url]
        yield [*words, "--url", url, "--json"]


def look(words: list[str]) -> str:
    """What a command says."""
    done = CliRunner().invoke(cli, words, prog_name="headrace")
    assert done.exit_code in (0, 1, 3), (words, done.output)
    said = done.stdout + done.stderr
    assert "Traceback (most recent" not in said, (words, said)
    assert "(unexpected;" not in said, (words, said)
    assert list(raw_in(said))[:3] == [], words
    if "--json" in words and done.exit_code == 0 and "watch" not in words:
        json.loads(done.stdout)
    return said


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_that_is_sent_breaks_a_screen(engine: str, tmp_path: Path) -> None:
    url, log = url_of(engine, tmp_path), Log()
    logger = logging.getLogger("headrace")
    logger.addHandler(log)
    try:
        jobs, workers, ended = asyncio.run(attacked(url))
    finally:
        logger.removeHandler(log)
    assert log.faults == []
    assert [one for text in log.plain for one in raw_in(text)] == []
    assert [text for text in log.plain if "\n" in text] == []
    for text in log.texts:
        assert list(raw_in(text)) == []
        assert re.match(r"\d\d:\d\d:\d\d", text), text
        assert all(line.startswith("    ") for line in text.split("\n")[1:]), text
    assert [one for text in log.documents for one in raw_in(text)] == []
    said = [look(words) for words in commands(url, jobs, workers, ended)]
    assert sum(SPELLED in one for one in said) > len(jobs)  # it was there, and came out harmless
    everything = {"jobs", "show", "explain", "logs", "watch", "batches", "failures", "doctor"}
    assert everything <= {one.partition(" ")[0] for one in (*READS, *OF_A_JOB, "watch")}


async def attacked(url: str) -> tuple[list[str], list[str], list[str]]:
    """The ids of jobs, of workers, and of jobs that have ended, after it all."""
    app = App(url)

    @app.task(name=TASK)
    async def evil(a: Any = None) -> Any:
        return a

    options = HubOptions(maintenance=False, webhooks=False, submits_per_second=None)
    async with serving(app, options) as hub:
        made = await app.keys.create("root", ["read", "submit", "work", "act", "admin"])
        attack = Attack(hub, made.text)
        job = await app.submit(TASK, {"a": WICKED}, delay=3600, **wicked_options())
        await attack.everything(str(job.id))
        await staged(attack, app)
        assert attack.asked > 2000, attack.asked
        found = [one async for one in every(app)]
        notable = sorted(found, key=lambda one: (not one.held, one.error is None, not one.requires, one.id))
        jobs = [str(one.id) for one in notable[:LOOKED_AT]] + [str(job.id)]
        ended = [str(one.id) for one in found if one.ended][:3]
        workers = [str(row.info.id) for row in await app.workers.list()][: 1000 if ALL else 3]
        await walk(hub, made.text, jobs)
        return jobs, workers, ended


def wicked_options() -> dict[str, Any]:
    return {
        "dedup": WICKED,
        "customer": WICKED,
        "concurrency_key": WICKED,
        "metadata": {WICKED: WICKED, "huge": HUGE, "deep": DEEP},
        "requires": {"a\nb\x1b[2J": WICKED},
        "trace": {"traceparent": WICKED, WICKED: WICKED},
        "request_key": WICKED,
    }


async def staged(attack: Attack, app: App) -> None:
    """What must be on the screens whatever else was refused: a job that runs, one that failed, notes of who acted."""
    running = await attack.held()
    report = {"progress": 50, "message": WICKED, "current_step": WICKED, "connector_details": {WICKED: WICKED}}
    await attack.post("/api/work/update_job_progress", **running, **report)
    await attack.post("/api/work/job_log", **running, first=1, lines=[{"message": WICKED, "level": "ERROR"}])
    await attack.post("/api/work/job_items", **running, first=1, items=[WICKED, HUGE])
    await attack.post("/api/work/job_step", **running, name="step", result=WICKED)
    failed = await attack.held()
    details = {"error_type": WICKED, "traceback": WICKED, "more": HUGE}
    await attack.post("/api/work/fail_job", **failed, error=WICKED, error_details=details, retry=False)
    done = await attack.held()
    await attack.post("/api/work/complete_job", **done, result={"a": WICKED, "b": HUGE})
    for verb in (app.jobs.handle(failed["job_id"]).retry, app.jobs.handle(done["job_id"]).discard):
        with suppress(ConfigError):
            await verb(by=WICKED)
    again = await attack.held()
    await attack.post("/api/work/fail_job", **again, error=WICKED, error_details=details, retry=False)
    await app.queues.pause("work", by=WICKED)


async def every(app: App) -> Any:
    cursor = None
    while True:
        page = await app.jobs.list(limit=1000, cursor=cursor)
        for job in page.items:
            yield job
        if (cursor := page.cursor) is None:
            return


@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**53 + 1], ids=["huge", "negative", "beyond 2^53"])
async def test_a_number_that_nobody_can_reckon_with_is_refused_and_not_stored(number: int, tmp_path: Path) -> None:
    requires = {"hardware": {"gpu_memory_gb": number}}
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        for path, field, body in (
            ("/api/jobs", "requires", {"task": TASK, "payload": {}, "requires": {"gpu_memory_gb": number}}),
            ("/api/jobs", "require", {"task": TASK, "payload": {}, "requirements": requires}),
            ("/api/work/register_worker", "capabilities.hardware.gpu_memory_gb", {"capabilities": requires}),
            ("/api/work/claim_job", "capabilities.hardware.gpu_memory_gb", {"capabilities": requires}),
        ):
            said = body if path == "/api/jobs" else {**body, "worker_id": WORKER, "tasks": [TASK]}
            answer = await hub.client.post(path, content=written(said))
            assert answer.status_code == 400, answer.text
            assert field in answer.json()["detail"]
        assert await hub.app.jobs.count() == 0
        assert await hub.app.workers.list() == []
