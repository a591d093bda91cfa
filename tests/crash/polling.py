"""An App with a continuous task, whose workers are killed; its store comes from HEADRACE_URL."""

from __future__ import annotations

import asyncio
import os

from headrace import App, Continuous

app = App()

INSTANCES = 3


@app.task(continuous=Continuous(instances=INSTANCES, cool_down=0.3))
async def poll() -> int:
    """Take a moment."""
    await asyncio.sleep(0.1)
    return os.getpid()
