"""The App with a bulk handler whose workers a crash test kills; its store comes from HEADRACE_URL."""

from __future__ import annotations

import asyncio
import os

from headrace import App, Retry

app = App()


@app.bulk(size=40, wait=0.02, retry=Retry(20, backoff="fixed", initial=0.05))
async def collects(numbers: list[int]) -> list[int | Exception]:
    """Take a moment for all of them; who did it."""
    await asyncio.sleep(0.15)
    return [os.getpid() for _ in numbers]
