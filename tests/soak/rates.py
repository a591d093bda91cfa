"""The App whose workers the soak of rates starts; its store comes from HEADRACE_URL."""

from __future__ import annotations

import asyncio
import time

from headrace import App, Rate

LIMIT, PER = 50, 10.0
KINDS = ("fixed", "sliding", "bucket")

app = App()
app.rate("fixed", Rate(LIMIT, per=PER, kind="fixed"))
app.rate("sliding", Rate(LIMIT, per=PER, kind="sliding"))
app.rate("bucket", Rate(LIMIT, per=PER, kind="bucket"))


async def _begin() -> float:
    at = time.time()
    await asyncio.sleep(0.02)
    return at


@app.task(rates=["fixed"])
async def fixed() -> float:
    """When it was called."""
    return await _begin()


@app.task(rates=["sliding"])
async def sliding() -> float:
    """When it was called."""
    return await _begin()


@app.task(rates=["bucket"])
async def bucket() -> float:
    """When it was called."""
    return await _begin()


@app.task
async def noise(seconds: float) -> None:
    """Hold up the loop, so that claims and calls take now more, now less."""
    time.sleep(seconds)  # noqa: ASYNC251
