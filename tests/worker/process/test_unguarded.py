"""A script that starts a worker without the guard of ``__main__``: its process handlers fail with words that help."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from headrace import App
from headrace.core.status import Reason, Status

SCRIPT = """
from headrace import App, Retry

print("the script runs", flush=True)
app = App()


@app.task(run_in="process", retry=Retry(0))
def burn(n: int) -> int:
    return n


@app.task
async def ordinary(n: int) -> int:
    return n


async def main() -> None:
    async with app:
        await burn.submit(1)
        await ordinary.submit(2)
        await app.worker(concurrency=2, burst=True).run()


app.wait(main())
"""


async def test_its_attempt_fails_and_the_worker_goes_on(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"HEADRACE_URL": url},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script runs") == 2, "once by itself, and once in the child"
    async with App(url) as app:
        jobs = {job.task.rpartition(".")[2]: job for job in (await app.jobs.list()).items}
    assert len(jobs) == 2
    burned = jobs["burn"]
    assert (burned.status, burned.reason, burned.charged) == (Status.FAILED, Reason.RETRIES_EXHAUSTED, 1)
    assert burned.error is not None
    assert "__main__" in burned.error.message
    assert jobs["ordinary"].status is Status.COMPLETED
    assert "Traceback" not in done.stderr
