"""When an App is open: its settings, its store, and its sessions, one for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from headrace.client import background
from headrace.client.session import Session
from headrace.config import Settings, url_source
from headrace.engine import Engine
from headrace.engines.connect import connect, redact
from headrace.errors import ConfigError, EngineError, NotOpen
from headrace.runtime.clock import Clock
from headrace.runtime.host import Host
from headrace.worker.log_capture import caught_logs

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Lifetime"]

T = TypeVar("T")


class _End(Enum):
    """What ``iterate`` reads behind the last item."""

    END = 0


class _LoopState:
    """An App on one loop: how often it was entered there, and what is open."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.session: Session | None = None
        self.logs = ExitStack()
        """What others wrote is logged too, by whatever handlers there are: it is made printable while this is open."""
        self.count = 0
        self.over = False


class Lifetime:
    """What can be entered and left, counted, on any loop; the half of an App that knows no tasks."""

    def __init__(self, code: Mapping[str, Any], clock: Clock | None) -> None:
        self._code = code
        self._override: dict[str, Any] = {}
        self._host = Host(clock)
        self._settings: Settings | None = None
        self._made: dict[Literal["engine"], Engine] = {}
        self._states: dict[asyncio.AbstractEventLoop, _LoopState] = {}
        self._waiter: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
        """What ``wait`` does, where it is not the background loop's business: under a harness."""

    def __repr__(self) -> str:
        url = self._override.get("url") or self._code["url"]
        return f"<{type(self).__name__} {redact(url) if url else '(settings)'}>"

    # -- settings

    @property
    def settings(self) -> Settings:
        """The settings in force; files and the environment are read once, at the first use;
        :raises ConfigError: naming the source, the key and the remedy"""
        if self._settings is None:
            self._settings = Settings.load(code=self._code, override=self._override)
        return self._settings

    def _url_source(self) -> tuple[str, list[str]]:
        """Where the URL of the store comes from, and which other sources of a URL it overrides, in words."""
        return url_source(self._code, self._override, redact)

    @contextmanager
    def _naming_url_source(self) -> Iterator[None]:
        """Add to an error where the URL comes from: a store that cannot be used is often not the one that was meant."""
        try:
            yield
        except (ConfigError, EngineError) as error:
            won, others = self._url_source()
            wins = f", which wins over {' and '.join(others)}" if others else ""
            error.add_note(f"the url comes from {won}{wins}")
            raise

    @property
    def host(self) -> Host:
        """Clock, dice, sleeps and threads."""
        return self._host

    @contextmanager
    def override(
        self, *, url: str | None = None, clock: Clock | None = None, host: Host | None = None
    ) -> Iterator[Self]:
        """Use another store and another clock for a while, as tests do; :raises ConfigError: the App is open"""
        # An unused App stays open for `wait`; it must not find there what belongs to the other store.
        background.leave(cast("App", self))
        if self._open_somewhere():
            raise ConfigError("override: this App is open; override it before it is entered")
        before = (self._override, self._host, self._settings, self._made)
        self._override = self._override | ({"url": url} if url is not None else {})
        self._host = host or (Host(clock) if clock is not None else self._host)
        self._settings, self._made = None, {}
        try:
            yield self
        finally:
            background.leave(cast("App", self))
            self._override, self._host, self._settings, self._made = before

    # -- opening

    def _open_somewhere(self) -> bool:
        return any(state.count and not loop.is_closed() for loop, state in list(self._states.items()))

    def _open_loop(self) -> asyncio.AbstractEventLoop | None:
        """An event loop that runs, and on which this App is open; None: it is open nowhere."""
        return next((loop for loop, state in list(self._states.items()) if state.session and loop.is_running()), None)

    def _new_engine(self) -> Engine:
        """Another session on the one store of this App; opened and closed by its user."""
        if not self._made:
            settings = self.settings
            # Loops of several threads may open it at once, and two engines would be two stores: the first one counts.
            # No lock, which a fork could leave locked: what was made in vain has touched nothing.
            with self._naming_url_source():
                engine = connect(
                    settings.url, settings.rules(), self._host, namespace=settings.namespace, key=settings.key
                )
            self._made.setdefault("engine", engine)
        return self._made["engine"].another_session()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        while True:
            state = self._states.setdefault(loop, _LoopState())
            async with state.lock:
                if state.over:  # the last one left while this one waited for the lock
                    continue
                if state.session is None:
                    state.logs.enter_context(caught_logs())
                    try:
                        engine = self._new_engine()
                        with self._naming_url_source():
                            state.session = await Session.open(
                                engine, self._host, self.settings.secret, self.settings.unwritten
                            )
                    except BaseException:
                        state.over = True
                        del self._states[loop]
                        state.logs.close()
                        raise
                state.count += 1
                return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        state = self._states[loop]
        async with state.lock:
            state.count -= 1
            if state.count or state.session is None:
                return
            state.over = True
            del self._states[loop]
            with state.logs:
                await state.session.close()

    def _forget(self, loop: asyncio.AbstractEventLoop) -> object:
        """Take this App for closed on a loop that a fork left behind; what was open there, to be kept and not used."""
        return self._states.pop(loop, None)

    def _session_on(self, loop: asyncio.AbstractEventLoop) -> Session | None:
        """What is open on a loop, if anything is; also for other threads than the loop's."""
        state = self._states.get(loop)
        return None if state is None else state.session

    @property
    def session(self) -> Session:
        """What is open on the running loop; :raises NotOpen: the App was not entered there"""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        state = self._states.get(loop) if loop is not None else None
        if state is None or state.session is None:
            where = "on this event loop" if self._open_somewhere() and loop is not None else "here"
            raise NotOpen(
                f"this App is not open {where}: use `async with app:`, or, without an event loop, "
                f"`app.wait(...)` and `task.submit_sync(...)`"
            )
        return state.session

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller without an event loop: ``job = app.wait(add.submit(1, 2))``.

        :raises SyncInAsync: this thread has a running loop
        :raises Stopped: in a handler that should stop meanwhile: the coroutine is cancelled
        """
        if self._waiter is not None:
            return cast("T", self._waiter(work))
        return background.wait(cast("App", self), work)

    def iterate(self, source: AsyncIterable[T]) -> Iterator[T]:
        """Read an async iterator without an event loop: ``for line in app.iterate(job.logs(follow=True)): …``.

        It reads any stream, log, watch or feed. Leaving the loop early closes the iterator.

        :raises SyncInAsync: this thread has a running loop
        """

        reading = aiter(source)

        async def step() -> T | _End:
            return await anext(reading, _End.END)

        async def close() -> None:
            if (aclose := getattr(reading, "aclose", None)) is not None:
                await aclose()

        try:
            while not isinstance(item := self.wait(step()), _End):
                yield item
        finally:
            self.wait(close())
