from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(240)

QUICKSTART = """
import asyncio
from headrace import App, Context, Retry

app = App("sqlite:///jobs.db")

@app.task(retry=Retry(max_retries=5), timeout=60, queue="images", priority=70)
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, str | int]:
    ctx.progress(50, "halfway")
    return {"image": image, "width": width}

@app.task
def add(a: int, b: int) -> int:          # plain functions run in a thread
    return a + b

async def main() -> None:
    async with app, app.worker(concurrency=10):
        job = await resize.submit("cat.png", width=320)
        print(await job.result(timeout=10), (await job.refresh()).status)
        later = await add.options(priority=90, delay=0.2, dedup="sum").submit(1, 2)
        jobs = await add.map([(i, i) for i in range(100)])
        print(sum([await j.result(timeout=10) for j in jobs]), await later.result(timeout=10))

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(QUICKSTART, encoding="utf-8")
    command = [sys.executable, "quick.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert (ran.returncode, ran.stdout) == (0, "{'image': 'cat.png', 'width': 320} completed\n9900 3\n"), ran.stderr
