"""The example for Flask, as its first lines say: a server and a worker, each a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.endpoints.processes import answering, started
from tests.support.servers.daemons import free_port

pytestmark = pytest.mark.timeout(240)

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[httpx2.Client]:
    port, environment = free_port(), {**os.environ, "PYTHONPATH": str(EXAMPLE)}
    with ExitStack() as stack:
        server = [sys.executable, "-m", "flask", "--app", "service", "run", "--port", str(port)]
        process = stack.enter_context(started(server, tmp_path, environment))
        address = f"http://127.0.0.1:{port}"
        answering(process, f"{address}/jobs/x")
        worker = [sys.executable, "-m", "headrace", "worker", "service:jobs"]
        stack.enter_context(started(worker, tmp_path, environment))
        yield stack.enter_context(httpx2.Client(base_url=address, trust_env=False, timeout=120))


def test_the_example_counts_words(web: httpx2.Client) -> None:
    ann, said = {"X-User": "ann"}, {"text": "to be or not to be"}
    assert web.post("/words", json=said).status_code == 401
    accepted = web.post("/words?most=2", json=said, headers=ann)
    assert accepted.status_code == 202
    place = accepted.headers["location"]
    found = {"words": 6, "most": [["to", 2], ["be", 2]]}
    result = web.get(f"{place}/result?wait=60", headers=ann)
    assert (result.status_code, result.json()) == (200, found)
    assert web.get(place, headers={"X-User": "bob"}).status_code == 404
    waited = web.post("/words", json={"text": " "}, headers=ann | {"Prefer": "wait=30"})
    assert (waited.status_code, waited.json()["code"]) == (422, "UnprocessableEntity")
    assert web.post("/words", json={}, headers=ann).json()["errors"][0]["field"] == "body.body.text"
