"""The hub command as a real process: where it listens, how it stops, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.patience import until_sync
from tests.hub.process import Running

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]


def running(shell: Shell, *words: str) -> Running:
    return Running(shell.start(*words, "--port", "0", "--json"))


def test_a_hub_serves_and_stops_in_good_order(shell: Shell) -> None:
    hub = running(shell, "hub", "quick:app")
    hub.until_ready()
    assert hub.get("/healthz")["loops"]["maintenance"] == "ok"
    assert hub.end() == 0
    assert [one["event"] for one in hub.events if one["event"] != "log"] == ["started", "stopping", "stopped"]


def test_a_hub_needs_no_app(shell: Shell) -> None:
    hub = running(shell, "hub", "--url", shell.url)
    hub.until_ready()
    assert hub.end(signal.SIGINT) == 0


def test_a_port_that_is_taken_is_told_with_a_remedy(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "choose another --port" in shell("hub", "--url", shell.url, "--port", port, code=2).stderr


def test_without_keys_it_is_for_this_machine_alone(shell: Shell) -> None:
    for flags in (["--host", "0.0.0.0"], ["--proxy-headers"]):
        told = shell("hub", "--url", shell.url, "--port", "0", *flags, code=2).stderr
        assert "headrace keys create" in " ".join(told.split())


def test_flags_that_mean_nothing_are_refused(shell: Shell) -> None:
    assert "must begin with /" in shell("hub", "--root-path", "jobs", code=2).stderr
    assert "give that, too" in shell("hub", "--keyfile", "x.pem", code=2).stderr
    for flag in ("--worker-grace", "--worker-lease"):
        for value, why in (("0", "above 0"), ("0s", "above 0"), ("-1", ""), ("inf", ""), ("nan", ""), ("200000w", "")):
            told = shell("hub", "--url", shell.url, "--port", "0", flag, value, code=2).stderr
            assert flag in told
            assert why in told
    assert "cannot be used" in shell("hub", "--url", shell.url, "--port", "0", "--certfile", "none.pem", code=2).stderr


def test_the_access_log_is_json_if_asked_for(shell: Shell) -> None:
    process = shell.start("hub", "quick:app", "--port", "0", "--log-format", "json")
    assert process.stderr is not None
    started = json.loads(process.stderr.readline())
    assert started["event"] == "started"
    urllib.request.urlopen(urllib.request.Request(started["url"] + "/api/version", headers={"X-Request-ID": "r-1"}))
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1].get("request_id") != "r-1":
        lines.append(json.loads(process.stderr.readline()))
    assert (lines[-1]["logger"], lines[-1]["path"], lines[-1]["status"]) == ("headrace.hub.access", "/api/version", 200)
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=60)[1].splitlines()
    assert [json.loads(line)["message"] for line in rest][-1] == "stopped"
    assert process.returncode == 0


def test_https_by_a_certificate(shell: Shell) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost"]
    san = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *named, *san], check=True, capture_output=True, cwd=shell.folder)
    hub = running(shell, "hub", "quick:app", "--certfile", "cert.pem", "--keyfile", "key.pem")
    assert hub.address.startswith("https://")
    trusted = ssl.create_default_context(cafile=shell.folder / "cert.pem")
    until_sync(lambda: _answers(hub, trusted))
    assert hub.end() == 0


def _answers(hub: Running, trusted: ssl.SSLContext) -> bool:
    try:
        return bool(hub.get("/healthz", context=trusted)["status"] == "ok")
    except urllib.error.URLError:
        return False


def test_on_sigterm_streams_end_and_whoever_waits_is_answered(shell: Shell) -> None:
    id = shell.submit("add", "a=1")
    hub = running(shell, "hub", "quick:app", "--grace", "600")
    job = f"{hub.address}/api/jobs/{id}"
    tag = urllib.request.urlopen(job, timeout=60).headers["ETag"]
    stream = urllib.request.urlopen(f"{job}/events", timeout=60)
    assert stream.readline()
    waiting = urllib.request.Request(f"{job}?wait=60", headers={"If-None-Match": tag})
    answers: list[int] = []
    waiter = threading.Thread(target=lambda: answers.append(_status(waiting)))
    waiter.start()
    until_sync(lambda: b'headrace_hub_open{kind="http"} 3.0' in _page(hub))
    assert hub.end() == 0
    waiter.join(60)
    assert answers == [304]
    assert b"event: error" in stream.read()


def _status(request: urllib.request.Request) -> int:
    try:
        return int(urllib.request.urlopen(request, timeout=90).status)
    except urllib.error.HTTPError as error:
        return error.code


def _page(hub: Running) -> bytes:
    with urllib.request.urlopen(f"{hub.address}/metrics", timeout=60) as page:
        return bytes(page.read())


@pytest.mark.parametrize("flags", [[], ["--no-webhooks"]], ids=["with deliveries", "without"])
def test_a_hub_that_is_killed_leaves_nothing_behind_and_another_goes_on(shell: Shell, flags: list[str]) -> None:
    first = running(shell, "hub", "quick:app", *flags)
    first.until_ready()
    second = running(shell, "hub", "quick:app", *flags)
    second.until_ready()
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(30)
    # Whoever plans now makes the job of a schedule that nobody else could.
    shell("schedules", "create", "soon", "add", "a=1", "--every", "1s", "--app", "quick")
    until_sync(lambda: shell.json("jobs", "--url", shell.url)["items"] != [])
    # And buries the worker that delivered its webhooks.
    until_sync(lambda: first.process.pid not in pids(shell))
    assert second.end() == 0
    assert pids(shell) == []


@pytest.mark.parametrize("flags", [[], ["--no-webhooks", "--no-maintenance"]], ids=["with duties", "without"])
def test_a_hub_whose_store_is_lost_ends_and_says_why(shell: Shell, flags: list[str]) -> None:
    hub = running(shell, "hub", "quick:app", *flags)
    hub.until_ready()
    path = Path(shell.url.removeprefix("sqlite:///"))
    path.rename(path.with_suffix(".away"))
    assert hub.process.wait(120) == 5, hub.log
    hub.until_read()
    told = hub.log + json.dumps(hub.events)
    assert str(path) in told
    assert "Traceback" not in told


def pids(shell: Shell) -> list[int]:
    return [row["info"]["pid"] for row in shell.json("workers", "--url", shell.url)]
