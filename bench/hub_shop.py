"""The App that the hub under test serves; the store is named on the command line."""

from __future__ import annotations

import asyncio

from headrace import App

__all__ = ["app"]

app = App()


@app.task
async def noop(n: int) -> None:
    pass


@app.task
async def hold(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task(queue="never")
async def never(n: int) -> None:
    pass
