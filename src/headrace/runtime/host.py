"""The machine underneath: names, threads, sleeps. A simulation supplies its own."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.runtime.clock import Clock, Dice, SystemClock, SystemDice

__all__ = ["Host"]


class Host:
    """Everything a service takes from its surroundings: clock, dice, sleeps, threads."""

    def __init__(self, clock: Clock | None = None, dice: Dice | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.dice: Dice = dice or SystemDice()

    @property
    def name(self) -> str:
        """The machine's name, for people to read; never an identity."""
        return socket.gethostname()

    @property
    def pid(self) -> int:
        """This process, for people to read."""
        return os.getpid()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for the event, at most so long; whether it happened."""
        if event.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def thread(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> threading.Thread:
        """Run a coroutine on a loop of its own, on a thread of its own, which does not keep the process alive."""
        thread = threading.Thread(target=lambda: asyncio.run(main()), name=name, daemon=True)
        thread.start()
        return thread
