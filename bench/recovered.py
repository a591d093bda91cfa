"""The App whose workers the recovery benchmark kills; its store comes from HEADRACE_URL."""

from __future__ import annotations

from bench.recovering import wait
from headrace import App

__all__ = ["app", "long"]

app = App()


@app.task(timeout=None)
async def long(folder: str) -> None:
    """Run until it is allowed to end."""
    await wait(folder)
