"""The example for Django, as its first lines say: a server and a worker, each a process of its own."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.endpoints.processes import answering, started
from tests.support.servers.daemons import free_port

pytestmark = pytest.mark.timeout(240)

EXAMPLE = Path(__file__).parents[3] / "examples" / "django"


def test_the_example_counts_words(tmp_path: Path) -> None:
    port, manage = free_port(), [sys.executable, str(EXAMPLE / "manage.py")]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE)}
    ann, said = {"X-User": "ann"}, {"text": "to be or not to be"}
    with ExitStack() as stack:
        server = [*manage, "runserver", "--noreload", str(port)]
        process = stack.enter_context(started(server, tmp_path, environment))
        address = f"http://127.0.0.1:{port}"
        answering(process, f"{address}/jobs/x")
        stack.enter_context(started([*manage, "headrace", "worker"], tmp_path, environment))
        web = stack.enter_context(httpx2.Client(base_url=address, trust_env=False, timeout=120))
        assert web.post("/words", json=said).status_code == 403
        accepted = web.post("/words?most=2", json=said, headers=ann)
        assert accepted.status_code == 202
        place = accepted.headers["location"]
        result = web.get(f"{place}/result?wait=60", headers=ann)
        assert (result.status_code, result.json()) == (200, {"words": 6, "most": [["to", 2], ["be", 2]]})
        assert web.get(place, headers={"X-User": "bob"}).status_code == 404
