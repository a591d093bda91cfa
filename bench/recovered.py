"""The App whose workers the recovery benchmark kills; its store comes from HEADRACE_URL."""

from __future__ import annotations

from bench.recovering import wait
from headrace import App, Retry

__all__ = ["app", "long"]

app = App()


# Without a pause before the next attempt: by default 1 to 2 s come on top, if the start was on record.
@app.task(retry=Retry(1000, backoff="fixed", initial=0.001), timeout=None)
async def long(folder: str) -> None:
    """Run until it is allowed to end."""
    await wait(folder)
