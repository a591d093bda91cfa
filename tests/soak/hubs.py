"""The App of the soak with hubs among the victims; its store comes from HEADRACE_URL, directly or behind a hub."""

from __future__ import annotations

import asyncio

from headrace import App, Context, Retry

RETRY = Retry(200, backoff="fixed", initial=0.1)
"""More often than anything is killed here."""
KEYS, AT_ONCE = 3, 6

app = App()


@app.task(retry=RETRY, max_concurrency=AT_ONCE)
async def near(ctx: Context, n: int, seconds: float, fails: bool) -> int:
    """Take a while; if it is to fail, then the first time that it is called."""
    await asyncio.sleep(seconds)
    if fails and ctx.job.charged == 0:
        raise RuntimeError("not yet")
    return n


@app.task(retry=RETRY, concurrency_key="{key}", max_per_key=1)
async def keyed(key: int, n: int, seconds: float) -> int:
    """Take a while, alone of its key."""
    await asyncio.sleep(seconds)
    return n
