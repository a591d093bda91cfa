"""The workers of ``examples/remote``, each at a real hub with keys: what becomes of jobs in their hands."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace import App
from tests.docs.pages import ROOT, blocks
from tests.hub.process import started
from tests.hub.remote_workers.pages import Pages, pages
from tests.support import npm, tools
from tests.support.until import until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(180),
]

REMOTE = ROOT / "examples" / "remote"
MOST = 60
"""Lines of an example, and not one of them."""

COMMAND = """
read -r payload
page=$(jq -r '.urls[0]' <<<"$payload")
[[ $page != *plain ]] || { echo hello && exit; }
echo "0 fetching $page" >&3
code=$(curl -s -o page -w '%{http_code}' "$page")
case $code in
200) jq -n --arg page "$page" --argjson size "$(wc -c <page)" '{($page): $size}' ;;
5??) echo "$page: $code" >&2 && exit 75 ;;
*) echo "$page: $code" >&2 && exit 1 ;;
esac
"""
"""What the worker in bash runs, for it to do what the others do."""

PROGRAMS = {
    "python": [sys.executable, str(REMOTE / "worker.py")],
    "node": ["node", str(REMOTE / "worker.mjs")],
    "bash": [str(REMOTE / "worker.sh"), "fetch", "bash", "-c", COMMAND],
}


@dataclass
class Scene:
    """A hub, a web server, and the worker between them."""

    client: httpx2.AsyncClient
    web: Pages
    worker: asyncio.subprocess.Process
    said: Path

    async def submit(self, *paths: str, **more: Any) -> str:
        """Submit a job that fetches these pages; its id."""
        payload = {"urls": [self.web.address + path for path in paths]}
        answer = await self.client.post("/api/jobs", json={"task": "fetch", "payload": payload, **more})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    async def job(self, id: str) -> dict[str, Any]:
        """The job as it is."""
        job: dict[str, Any] = (await self.client.get(f"/api/jobs/{id}")).json()
        return job

    async def told(self, id: str) -> bool:
        """Whether the hub was told how far the job is."""
        return (await self.job(id))["progress"] is not None

    async def until(self, id: str, status: str) -> dict[str, Any]:
        """The job once it has this status."""

        async def there() -> bool:
            job.update(await self.job(id))
            return job["status"] == status or job["finished_at"] is not None

        job = dict[str, Any]()
        await until(there)
        assert job["status"] == status, (job, self.said.read_text())
        return job


@asynccontextmanager
async def scene(program: str, folder: Path) -> AsyncIterator[Scene]:
    url = f"sqlite:///{folder}/jobs.db"
    async with App(url) as app:
        boss = (await app.keys.create("boss", ["read", "submit", "act"])).text
        key = (await app.keys.create("worker", ["work"], tasks=["fetch"])).text
    said = folder / "worker.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    settings = {"HEADRACE_BEAT": "1", "HEADRACE_LEASE": "20", "HEADRACE_CANCEL_GRACE": "1"}
    with started(folder, "hub", "--url", url, "--no-webhooks", environment=settings) as hub, said.open("wb") as log:
        environment = clean | {"PATH": tools.path(), "HEADRACE_HUB": hub.address, "HEADRACE_KEY": key}
        environment["PYTHONUNBUFFERED"] = "1"
        headers = {"authorization": f"Bearer {boss}"}
        async with (
            httpx2.AsyncClient(base_url=hub.address, headers=headers, trust_env=False, timeout=30) as client,
            pages() as web,
        ):
            words = [npm.node() if word == "node" else word for word in PROGRAMS[program]]
            worker = await asyncio.create_subprocess_exec(
                *words, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield Scene(client, web, worker, said)
            finally:
                if worker.returncode is None:
                    os.killpg(worker.pid, signal.SIGKILL)
                    await worker.wait()


@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_does_what_a_worker_does(program: str, tmp_path: Path) -> None:
    async with scene(program, tmp_path) as one:
        job = await one.until(await one.submit("/there"), "completed")
        assert job["result"] == {f"{one.web.address}/there": 5}

        job = await one.until(await one.submit("/broken", max_retries=1, retry_delays=[0]), "failed")
        assert (job["reason"], job["attempt"]) == ("retries_exhausted", 2)
        assert "503" in job["error"]["message"]

        job = await one.until(await one.submit("/missing", max_retries=3), "failed")
        assert (job["reason"], job["attempt"]) == ("non_retryable", 1)
        assert "404" in job["error"]["message"]

        if program == "bash":
            job = await one.until(await one.submit("/plain"), "failed")
            assert (job["reason"], "parse error" in job["error"]["message"]) == ("non_retryable", True), job["error"]

        slow = await one.submit("/slow", "/there")
        await until(lambda: "/slow" in one.web.asked)
        await until(lambda: one.told(slow))
        job = await one.until(slow, "running")
        assert (job["progress"]["percent"], one.web.address in job["progress"]["message"]) == (0, True)
        assert (await one.client.post(f"/api/jobs/{slow}/cancel", json={})).is_success
        job = await one.until(slow, "cancelled")
        assert job["reason"] == "user"
        # The one in Python hears of it when it has the page: by then the job is no longer its own.
        one.web.go_on.set()
        await one.until(await one.submit("/there"), "completed")
        one.web.go_on.clear()

        held = await one.submit("/slow")
        await until(lambda: one.web.asked.count("/slow") == 2)
        one.worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(45):
            assert await one.worker.wait() == 0, one.said.read_text()
        job = await one.job(held)
        assert (job["status"], job["charged"]) == ("queued", 0), "handed back before it ended"


@pytest.mark.parametrize("file", sorted(REMOTE.iterdir()), ids=lambda file: file.name)
def test_it_is_short_and_shown_in_the_guide(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) < MOST
    page = (ROOT / "docs" / "guides" / "remote-workers.md").read_text(encoding="utf-8")
    assert [block.body for block in blocks(page) if block.file == file.name] == [text]
