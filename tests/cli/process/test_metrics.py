"""Metrics, scraped from real worker processes."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client import REGISTRY, Metric
from prometheus_client.registry import Collector

from headrace.cli.commands.worker import Options
from headrace.cli.process.health import Address
from headrace.cli.process.metrics import serving
from headrace.contrib.prometheus import HeadraceCollector
from tests.cli.conftest import Shell
from tests.cli.patience import until_sync
from tests.contrib.prometheus.pages import samples, value

pytestmark = pytest.mark.timeout(240)


def address_of(worker: subprocess.Popen[str]) -> str:
    """Where a worker says that its metrics are."""
    assert worker.stderr is not None
    for line in worker.stderr:
        if found := re.search(r"metrics at (http://\S+)", line):
            return found[1]
    raise AssertionError("it never said where")


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
    worker = shell.start("worker", "quick:app", "--metrics-port", "0", "--concurrency", "4")
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
    worker = shell.start("worker", "own:app", "--metrics-port", "0")
    url = address_of(worker)
    until_sync(lambda: value(scrape(url), "mails_total") == 1)
    with pytest.raises(urllib.error.HTTPError, match="404") as absent:
        scrape(url.removesuffix("metrics"))
    absent.value.close()


def test_a_taken_port_is_told_at_once(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = shell("worker", "quick", "--metrics-port", str(port), code=2).stderr
    assert f"cannot serve metrics on 127.0.0.1:{port}: " in said
    assert "choose another --metrics-port" in said


def test_a_host_that_is_not_this_machine_is_told(shell: Shell) -> None:
    said = shell("worker", "quick", "--metrics-port", "0", "--metrics-host", "192.0.2.1", code=2).stderr
    assert "cannot serve metrics on 192.0.2.1:0: " in said
    assert "choose another --metrics-host" in said


def test_the_environment_may_say_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("HEADRACE_METRICS_PORT", str(taken.getsockname()[1]))
        assert "cannot serve metrics" in shell("worker", "quick", code=2).stderr


def test_without_the_extra_one_line_says_what_to_install(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    said = shell("worker", "quick", "--metrics-port", "0", "--processes", "2", code=2).stderr
    assert 'prometheus-client: pip install "headrace[prometheus]"' in said
    assert "Traceback" not in said


def test_without_the_flag_nothing_of_it_is_loaded(shell: Shell) -> None:
    look = (
        "import sys; from headrace.cli.root import cli\n"
        "try: cli(['worker', 'quick:app', '--burst'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in sys.modules if name.startswith(('prometheus_client', 'headrace.contrib'))])"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "[]"


def test_every_process_has_a_port_of_its_own() -> None:
    def ports(port: int) -> list[str]:
        options = Options(
            concurrency=1,
            queues=(),
            tasks=(),
            offers=(),
            burst=False,
            imports=(),
            health=None,
            metrics=Address("::", port),
            grace=1,
        )
        return [word for index in (0, 2) for word in options.flags(index)[-4:]]

    assert ports(9464) == [
        "--metrics-port",
        "9464",
        "--metrics-host",
        "::",
        "--metrics-port",
        "9466",
        "--metrics-host",
        "::",
    ]
    assert ports(0) == ["--metrics-port", "0", "--metrics-host", "::", "--metrics-port", "0", "--metrics-host", "::"]


def test_ports_that_are_not_there_are_told(shell: Shell) -> None:
    said = shell("worker", "quick", "--metrics-port", "65535", "--processes", "2", code=2).stderr
    assert "--metrics-port 65535 leaves no ports for 2 processes" in said


def test_a_host_without_a_port_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    said = shell("worker", "quick", "--burst", "--metrics-host", "0.0.0.0", code=2).stderr
    assert "--metrics-host says where --metrics-port listens: give that, too" in said
    monkeypatch.setenv("HEADRACE_METRICS_HOST", "0.0.0.0")  # of the machine, for whoever wants metrics
    shell("worker", "quick", "--burst")


def test_the_page_is_gone_when_it_is_served_no_more(shell: Shell) -> None:
    from quick import app  # type: ignore[import-not-found]

    with serving(app, Address("127.0.0.1", 0)) as where:
        assert "headrace_store_up 0.0" in scrape(f"http://{where}/metrics")  # the App is not open
    with pytest.raises(urllib.error.URLError):
        scrape(f"http://{where}/metrics")


class Broken(Collector):
    """A collector of somebody else's."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        raise RuntimeError("broken")


def test_a_scrape_that_fails_is_answered_and_the_next_one_is_not_harmed(
    shell: Shell, capfd: pytest.CaptureFixture[str]
) -> None:
    from quick import app

    broken = Broken()
    with serving(app, Address("127.0.0.1", 0)) as where:
        REGISTRY.register(broken)
        try:
            with pytest.raises(urllib.error.HTTPError, match="500") as failed:
                scrape(f"http://{where}/metrics")
            failed.value.close()
        finally:
            REGISTRY.unregister(broken)
        assert "headrace_store_up" in samples(scrape(f"http://{where}/metrics"))


def test_a_collector_that_the_app_has_registered_itself_is_served(shell: Shell) -> None:
    from quick import app

    collector = HeadraceCollector(app, store=False)
    REGISTRY.register(collector)
    try:
        with serving(app, Address("127.0.0.1", 0)) as where:
            page = samples(scrape(f"http://{where}/metrics"))
        assert "headrace_store_up" not in page
        with serving(app, Address("127.0.0.1", 0)) as where:  # it was left registered
            assert samples(scrape(f"http://{where}/metrics")).keys() == page.keys()
    finally:
        REGISTRY.unregister(collector)
