"""The page on error reporting, with the real SDK of Sentry, which sends to a receiver of the test."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.test_hub_guide import environment

pytestmark = pytest.mark.timeout(120)

PAGE = (ROOT / "docs" / "guides" / "error-reporting.md").read_text(encoding="utf-8")


@contextmanager
def collector() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The DSN of a receiver, and the events that it has received."""
    events = list[dict[str, Any]]()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            _, *lines = (gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body).splitlines()
            for head, item in zip(lines[::2], lines[1::2], strict=False):
                if json.loads(head)["type"] == "event":
                    events.append(json.loads(item))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://key@127.0.0.1:{server.server_port}/1", events
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reported(folder: Path, *, every_attempt: bool) -> list[dict[str, Any]]:
    """The events of a run of the page's program."""
    for block in blocks(PAGE):
        if block.file:
            text = block.body
            if every_attempt:
                text = text.replace("report_errors(app)\nTWICE", "report_errors(app, every_attempt=True)\nTWICE")
            (folder / block.file).write_text(text, encoding="utf-8")
    with collector() as (dsn, events):
        environ = environment(SENTRY_DSN=dsn, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
        command = [sys.executable, "shop.py"]
        ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=90, check=False)
        assert ran.returncode == 0, ran.stderr
    return events


def errors_of(events: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Task, attempt, type and text of each, in order."""
    found = []
    for event in events:
        error = event["exception"]["values"][-1]
        found.append((event["tags"]["job.task"], str(event["tags"]["job.attempt"]), error["type"], error["value"]))
    return sorted(found)


LAST = [
    ("charge", "2", "ConnectionError", "no bank for order 7"),
    ("draw", "2", "ValueError", "no picture of order 7"),
    ("pack", "2", "LookupError", "no box for order 7"),
    ("send", "2", "Timeout", "the attempt ran out of time (0.2 s)"),
]


def test_the_last_attempt_of_each_job_is_reported_once(tmp_path: Path) -> None:
    events = reported(tmp_path, every_attempt=False)
    assert errors_of(events) == LAST
    assert {event["tags"]["job.status"] for event in events} == {"failed"}
    assert len({event["tags"]["job.id"] for event in events}) == 4
    by_task = {event["tags"]["job.task"]: event for event in events}
    for task in ("charge", "pack"):
        frames = by_task[task]["exception"]["values"][-1]["stacktrace"]["frames"]
        assert (frames[-1]["function"], frames[-1]["vars"]["order"]) == (task, "7")
    assert "in draw" in by_task["draw"]["extra"]["traceback"]


def test_every_attempt_is_reported_once_if_that_is_wanted(tmp_path: Path) -> None:
    events = reported(tmp_path, every_attempt=True)
    first = [(task, "1", kind, text) for task, _, kind, text in LAST]
    assert errors_of(events) == sorted([*first, *LAST])
    statuses = {(event["tags"]["job.attempt"], event["tags"]["job.status"]) for event in events}
    assert {(str(attempt), status) for attempt, status in statuses} == {("1", "retrying"), ("2", "failed")}
