"""Health and metrics, requested from real worker processes."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest
from prometheus_client import REGISTRY, Metric
from prometheus_client.registry import Collector

from headrace import App
from headrace.cli.options import Address
from headrace.cli.process.health import serving, vitals
from headrace.contrib.prometheus import HeadraceCollector
from headrace.worker.worker import Worker
from tests.cli.conftest import Shell
from tests.cli.patience import until_sync
from tests.contrib.prometheus.pages import samples, value
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)


def address_of(worker: subprocess.Popen[str]) -> str:
    """Where a worker says that its metrics are."""
    assert worker.stderr is not None
    for line in worker.stderr:
        if found := re.search(r"and (http://\S+/metrics)", line):
            return found[1]
    raise AssertionError("it never said where")


def reply(url: str, method: str = "GET") -> tuple[int, str]:
    """Status and body, whatever the status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def status_of(shell: Shell, id: str) -> str:
    return str(shell.json("show", id, "--url", shell.url)["status"])


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def test_a_worker_is_scraped(shell: Shell) -> None:
    for number in range(3):
        shell.submit("add", f"a={number}")
    shell.submit("resize", "image=x")
    boom, slow = shell.submit("boom"), shell.submit("slow", "seconds=600")
    worker = shell.start("worker", "quick:app", "--health", "0", "--concurrency", "4")
    url = address_of(worker)
    assert url.startswith("http://127.0.0.1:")
    # Not by scraping: a scrape reads the store, and the next one only seconds later.
    until_sync(lambda: status_of(shell, boom) == "failed" and status_of(shell, slow) == "running")

    def told(name: str, wanted: float, **labels: str) -> None:
        until_sync(lambda: value(scrape(url), name, **labels) == wanted, what=lambda: scrape(url))

    told("headrace_attempts_total", 3, task="add", queue="default", outcome="completed")
    told("headrace_attempts_total", 1, task="resize", queue="images", outcome="completed")
    told("headrace_dead_letters_total", 1, task="boom", queue="default")
    told("headrace_jobs_running", 1, task="slow", queue="default")
    told("headrace_queue_jobs", 1, queue="default", status="failed")  # once the store is read again
    told("headrace_queue_jobs", 1, queue="default", status="running")
    told("headrace_workers", 1, state="alive")
    page = scrape(url)
    assert value(page, "headrace_attempts_total", task="boom", queue="default", outcome="failed") == 2
    assert value(page, "headrace_retries_total", task="boom", queue="default") == 1
    assert value(page, "headrace_waiting_seconds_count", task="add", queue="default") == 3
    assert value(page, "headrace_running_seconds_count", task="resize", queue="images") == 1
    assert value(page, "headrace_worker_concurrency") == 4
    assert value(page, "headrace_store_up") == 1
    assert "process_resident_memory_bytes" in samples(page) or sys.platform != "linux"
    (shell.folder / "go").touch()
    worker.terminate()
    worker.communicate(timeout=60)
    assert worker.returncode == 0


def test_what_handlers_count_themselves_is_on_the_page_and_nothing_else_is_there(shell: Shell) -> None:
    (shell.folder / "own.py").write_text(
        "from prometheus_client import Counter\nfrom quick import app\nmails = Counter('mails', 'Mails.')\n"
        "@app.task\nasync def mail() -> None:\n    mails.inc()\n"
    )
    shell("submit", "mail", "--app", "own:app")
    worker = shell.start("worker", "own:app", "--health", "0")
    url = address_of(worker)
    until_sync(lambda: value(scrape(url), "mails_total") == 1)
    assert reply(url.removesuffix("metrics")) == (404, "there are /healthz, /livez, /metrics\n")


BLOCKED = """
import time
from pathlib import Path
from quick import app

@app.task
async def block() -> None:
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.05)
"""


def test_a_blocked_event_loop_is_told_and_its_metrics_are_still_served(shell: Shell) -> None:
    (shell.folder / "blocked.py").write_text(BLOCKED)
    worker = shell.start("worker", "blocked:app", "--health", "0")
    url = address_of(worker).removesuffix("/metrics")
    until_sync(lambda: reply(f"{url}/healthz")[0] == 200)
    shell("submit", "block", "--app", "blocked:app")
    until_sync((shell.folder / "begun").exists)
    until_sync(lambda: reply(f"{url}/healthz")[0] == 503)
    assert json.loads(reply(f"{url}/healthz")[1])["healthy"] is False
    page = scrape(f"{url}/metrics")
    assert value(page, "headrace_worker_healthy") == 0
    assert (value(page, "headrace_worker_loop_lag_seconds") or 0) > 1
    assert reply(f"{url}/livez")[0] == 200, "it has not stood for a lease yet"
    (shell.folder / "go").touch()
    until_sync(lambda: reply(f"{url}/healthz")[0] == 200)


def test_a_host_that_is_not_this_machine_is_told(shell: Shell) -> None:
    said = shell("worker", "quick", "--health", "192.0.2.1:0", code=2).stderr
    assert "cannot listen on 192.0.2.1:0: " in said
    assert "choose another --health" in said


def test_the_environment_may_say_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("HEADRACE_HEALTH", str(taken.getsockname()[1]))
        assert "cannot listen on 127.0.0.1" in shell("worker", "quick", code=2).stderr


def test_without_the_extra_one_line_says_what_to_install(shell: Shell) -> None:
    (shell.folder / "bare.py").write_text(
        "import sys\nsys.modules['prometheus_client'] = None\n"
        "sys.modules.pop('headrace.contrib.prometheus', None)\nfrom quick import app\n"
    )
    url = address_of(shell.start("worker", "bare:app", "--health", "0"))
    assert reply(url) == (
        501,
        'headrace.contrib.prometheus needs prometheus-client: pip install "headrace[prometheus]"\n',
    )
    until_sync(lambda: reply(url.replace("/metrics", "/healthz"))[0] == 200)


def test_without_the_flag_nothing_of_it_is_loaded(shell: Shell) -> None:
    look = (
        "import sys; from headrace.cli.root import cli\n"
        "try: cli(['worker', 'quick:app', '--burst'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in sys.modules if name.startswith(('prometheus_client', 'headrace.contrib'))])"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "[]"


def test_ports_that_are_not_there_are_told(shell: Shell) -> None:
    said = shell("worker", "quick", "--health", "65535", "--processes", "2", code=2).stderr
    assert "--health 127.0.0.1:65535 leaves no ports for 2 processes" in said


@pytest.fixture
async def working() -> AsyncIterator[tuple[Worker, str]]:
    """A worker, and where its health is served."""
    async with App("memory://") as app, app.worker() as worker:
        await until(lambda: worker.healthy)
        with serving(app, worker, Address("127.0.0.1", 0)) as where:
            yield worker, f"http://{where}"


async def test_healthz_says_how_the_worker_is(working: tuple[Worker, str], monkeypatch: pytest.MonkeyPatch) -> None:
    worker, url = working
    status, body = reply(f"{url}/healthz?x=1")
    told = json.loads(body)
    assert status == 200
    assert told == vitals(worker) | {"silence_seconds": told["silence_seconds"]}
    assert list(told)[:5] == ["healthy", "worker", "state", "busy", "buffered"]
    assert (told["healthy"], told["done"], told["stale"]) == (True, 0, 0)
    monkeypatch.setattr(Worker, "healthy", False)
    status, body = reply(f"{url}/healthz")
    assert (status, json.loads(body)["healthy"]) == (503, False)


async def test_livez_says_whether_the_loop_has_moved_within_a_lease(
    working: tuple[Worker, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, url = working
    monkeypatch.setattr(Worker, "healthy", False)  # as while the store is away
    assert reply(f"{url}/livez")[0] == 200
    worker.ticked_at -= worker.engine.rules.lease
    assert reply(f"{url}/livez")[0] == 503  # this test is on the worker's loop, which does not tick meanwhile


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/healthz", 405)])
async def test_other_requests_are_refused(working: tuple[Worker, str], method: str, path: str, status: int) -> None:
    assert reply(working[1] + path, method)[0] == status


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
async def test_head_has_no_body(working: tuple[Worker, str], path: str) -> None:
    with socket.create_connection(("127.0.0.1", int(working[1].rpartition(":")[2])), timeout=60) as client:
        client.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
    assert b" 200 OK\r\n" in head
    assert body == b""


async def test_what_is_not_http_is_refused_and_a_client_that_leaves_is_forgotten(
    working: tuple[Worker, str], capfd: pytest.CaptureFixture[str]
) -> None:
    port = int(working[1].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"hello\r\n\r\n")
        assert b"400" in b"".join(iter(lambda: client.recv(65536), b""))
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, and no end
    assert reply(f"{working[1]}/healthz")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


async def test_the_page_is_gone_when_it_is_served_no_more() -> None:
    app = App("memory://")
    async with app:
        worker = app.worker()
    with serving(app, worker, Address("127.0.0.1", 0)) as where:
        assert "headrace_store_up 0.0" in scrape(f"http://{where}/metrics")  # the App is not open
    with pytest.raises(urllib.error.URLError):
        scrape(f"http://{where}/metrics")


class Broken(Collector):
    """A collector of somebody else's."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        raise RuntimeError("broken")


async def test_a_scrape_that_fails_is_answered_and_the_next_one_is_not_harmed(
    working: tuple[Worker, str], capfd: pytest.CaptureFixture[str]
) -> None:
    broken, url = Broken(), f"{working[1]}/metrics"
    REGISTRY.register(broken)
    try:
        assert (await asyncio.to_thread(reply, url))[0] == 500
    finally:
        REGISTRY.unregister(broken)
    assert "headrace_store_up" in samples(await asyncio.to_thread(scrape, url))


async def test_a_collector_that_the_app_has_registered_itself_is_served() -> None:
    async with App("memory://") as app, app.worker() as worker:
        collector = HeadraceCollector(app, store=False)
        REGISTRY.register(collector)
        try:
            with serving(app, worker, Address("127.0.0.1", 0)) as where:
                page = samples(scrape(f"http://{where}/metrics"))
            assert "headrace_store_up" not in page
            with serving(app, worker, Address("127.0.0.1", 0)) as where:  # it was left registered
                assert samples(scrape(f"http://{where}/metrics")).keys() == page.keys()
        finally:
            REGISTRY.unregister(collector)
