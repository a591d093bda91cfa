"""The access log: one line for each request, with its id, and without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import App
from headrace.hub import HubOptions
from headrace.logs import JsonFormatter
from tests.hub.live.listening import connected
from tests.hub.serving import serving
from tests.support.until import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    logger, kept = logging.getLogger("headrace.hub.access"), Kept()
    before = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    yield kept.records
    logger.removeHandler(kept)
    logger.setLevel(before)


async def test_a_request_leaves_one_line(url: str, log: list[logging.LogRecord]) -> None:
    async with serving(url) as hub:
        answer = await hub.client.get("/api/version", headers={"X-Request-ID": "abc-1"})
        assert answer.headers["x-request-id"] == "abc-1"
    (record,) = log
    line = json.loads(JsonFormatter().format(record))
    facts = {name: line[name] for name in ("method", "path", "status", "bytes", "request_id", "key", "client")}
    assert facts == {
        "method": "GET",
        "path": "/api/version",
        "status": 200,
        "bytes": len(answer.content),
        "request_id": "abc-1",
        "key": "local",
        "client": "127.0.0.1",
    }
    assert 0 <= line["duration"] < 60
    assert record.getMessage().startswith("GET /api/version 200 ")
    assert record.getMessage().endswith(f" {len(answer.content)} B key local [abc-1]")


async def test_an_id_is_given_where_none_was(url: str, log: list[logging.LogRecord]) -> None:
    async with serving(url) as hub:
        ids = {(await hub.client.get("/api/version")).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert ids == {vars(record)["request_id"] for record in log}


@pytest.mark.parametrize("id", ["a b", "x" * 129, "a\x1b[31m", '"', ""])
async def test_an_id_that_could_garble_a_log_is_replaced(id: str, url: str) -> None:
    async with serving(url) as hub:
        headers = [(b"X-Request-ID", id.encode())]
        assert (await hub.client.get("/api/version", headers=headers)).headers["x-request-id"] != id


async def test_secrets_are_in_no_line(url: str, log: list[logging.LogRecord]) -> None:
    async with serving(url) as hub:
        await hub.client.get("/api/version?key=hr_secret", headers={"Authorization": "Bearer hr_secret"})
        await hub.client.get("/api/jobs/x%0aevil%1b?token=hr_secret", headers={"Cookie": "hr_secret"})
    lines = [JsonFormatter().format(record) + record.getMessage() for record in log]
    assert len(lines) == 2
    assert not any("hr_secret" in line or "\n" in line or "\x1b" in line for line in lines)
    assert "/api/jobs/x%0aevil%1b" in lines[1]


async def test_problems_have_a_line_and_an_id_too(url: str, log: list[logging.LogRecord]) -> None:
    async with serving(url) as hub:
        answer = await hub.client.get("/nothing")
        assert answer.headers["x-request-id"] == vars(log[0])["request_id"]
        assert vars(log[0])["status"] == 404


async def test_probes_are_told_only_to_those_who_want_everything(url: str, log: list[logging.LogRecord]) -> None:
    async with serving(url) as hub:
        await hub.client.get("/healthz")
        assert not log
        logging.getLogger("headrace.hub.access").setLevel(logging.DEBUG)
        await hub.client.get("/healthz")
        assert len(log) == 1


async def test_behind_a_prefix_probes_are_left_out_and_jobs_are_named(url: str, log: list[logging.LogRecord]) -> None:
    options = HubOptions(root_path="/behind", maintenance=False, webhooks=False)
    async with serving(url, options) as hub:
        await hub.client.get("/healthz")
        await hub.client.get("/readyz")
        assert not log
        id = (await hub.client.post("/api/jobs", json={"task": "a"})).json()["job_id"]
        await hub.client.get(f"/api/jobs/{id}")
    assert [vars(record)["job_id"] for record in log] == [id, id]


async def test_a_key_that_is_refused_is_named_and_nobody_is_no_key(url: str, log: list[logging.LogRecord]) -> None:
    async with App(url) as app:
        shop = await app.keys.create("shop", ["read"], customer="acme")
    bearer = {"authorization": f"Bearer {shop.text}"}
    async with serving(url) as hub:
        for path in ("/api/keys", "/api/stats"):  # a scope that it lacks, and what is not for customers
            assert (await hub.client.get(path, headers=bearer)).status_code == 403
        assert (await hub.client.get("/docs")).status_code == 200
        assert (await hub.client.get("/api/stats")).status_code == 401
    assert [vars(record).get("key") for record in log] == ["shop", "shop", None, None]


async def test_a_socket_that_says_its_key_in_a_message_is_named(url: str, log: list[logging.LogRecord]) -> None:
    async with App(url) as app:
        key = await app.keys.create("watcher", ["read"])
    async with serving(url) as hub:
        async with connected(hub) as socket:
            assert (await socket.ask("authenticate", key=key.text))["name"] == "watcher"
        await until(lambda: bool(log))
    assert [vars(record).get("key") for record in log] == ["watcher"]


async def test_the_log_can_be_left_out(url: str, log: list[logging.LogRecord]) -> None:
    async with serving(url, HubOptions(maintenance=False, webhooks=False, access_log=False)) as hub:
        assert (await hub.client.get("/api/version")).headers["x-request-id"]
    assert not log
