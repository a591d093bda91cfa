"""Resources: what handlers share, opened once per worker and closed when it stops."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Generic, TypeVar, cast

from headrace.errors import ConfigError, HeadraceError, NotOpen
from headrace.worker.execution.errors import is_passing, message_of

__all__ = ["Maker", "Resource", "Resources"]

_log = logging.getLogger("headrace.worker")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Maker = Callable[
    [], AsyncIterator[T] | AbstractAsyncContextManager[T, Any] | Iterator[T] | AbstractContextManager[T, Any]
]
"""A generator function that yields once, async or plain, or a function that makes a context manager."""


class Resource(Generic[T_co]):
    """Something that the handlers of a worker share, open while it runs; made by ``@app.resource``."""

    def __init__(self, fn: Maker[T_co]) -> None:
        """
        :raises ConfigError: it is no function of this kind
        """
        self.fn = fn
        """The function itself."""
        self.name: str = getattr(fn, "__name__", repr(fn))
        """The function's name."""
        if not callable(fn) or isinstance(fn, type) or inspect.iscoroutinefunction(fn):
            raise ConfigError(f"resource {self.name!r}: {_KINDS}")
        try:
            inspect.signature(fn).bind()
        except TypeError:
            raise ConfigError(f"resource {self.name!r} must need no arguments: it is opened by the worker") from None

    def __repr__(self) -> str:
        return f"<Resource {self.name!r}>"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[T_co]:
        """Open it here, apart from any worker: ``async with db.open() as pool:``."""
        if inspect.isasyncgenfunction(self.fn):
            made: Any = asynccontextmanager(self.fn)()
        elif inspect.isgeneratorfunction(self.fn):
            made = contextmanager(self.fn)()
        else:
            made = self.fn()
        if isinstance(made, AbstractAsyncContextManager):
            async with made as value:
                yield value
        elif isinstance(made, AbstractContextManager):
            with made as value:
                yield value
        else:
            raise ConfigError(f"resource {self.name!r}: {_KINDS}")


_KINDS = "it must be a generator function that yields once, async or plain, or a function that makes a context manager"


class Resources:
    """The resources of one worker: all open, or none."""

    def __init__(self, resources: Sequence[Resource[Any]] = ()) -> None:
        self._resources = tuple(resources)
        self._values: dict[Resource[Any], Any] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._are_open, self._close = asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return len(self._resources)

    def get(self, resource: Resource[T]) -> T:
        """What the resource yielded; from any thread; :raises NotOpen: it is not one of these"""
        try:
            return cast("T", self._values[resource])
        except KeyError:
            name = getattr(resource, "name", resource)
            raise NotOpen(
                f"resource {name!r} is not open in this worker: define it with @app.resource of the same App, and"
                " before the worker starts"
            ) from None

    async def open(self) -> None:
        """Open all of them in the order of their definition;
        :raises HeadraceError: naming the one that could not be opened; those before it are closed again"""
        if not self._resources:
            return
        self._close = asyncio.Event()
        # A task of their own: what is entered in one task (a task group, a time-out) must be left in the same.
        self._keeper = asyncio.create_task(self._keep(), name="headrace-resources")
        await self.wait(self._keeper)

    async def _keep(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for resource in self._resources:
                    try:
                        value = await stack.enter_async_context(_closed_quietly(resource))
                    except BaseException as error:  # a SystemExit is no better than any other error
                        if is_passing(error):
                            raise
                        what = f"{type(error).__name__}: {message_of(error)}"
                        raise HeadraceError(f"resource {resource.name!r} could not be opened: {what}") from error
                    self._values[resource] = value
                self._are_open.set()
                await self._close.wait()
        finally:
            self._values.clear()

    async def wait(self, opening: asyncio.Task[None]) -> None:
        """Wait until they are open; raises what kept this task from opening them. A caller that gives up cancels it."""
        opened = asyncio.create_task(self._are_open.wait())
        try:
            await asyncio.wait({opening, opened}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            opening.cancel()
            await asyncio.wait([opening])
            raise
        finally:
            opened.cancel()
        if opening.done():
            await opening

    async def close(self) -> None:
        """Close all of them, the last one first; what goes wrong there is logged."""
        self._are_open = asyncio.Event()
        self._close.set()
        if self._keeper is not None:
            await asyncio.wait([self._keeper])
            if not self._keeper.cancelled():
                self._keeper.exception()  # raised by ``open``, unless its caller gave up
            self._keeper = None


@asynccontextmanager
async def _closed_quietly(resource: Resource[T]) -> AsyncIterator[T]:
    """Open; an error while closing must not keep the others open, nor hide why the worker stopped."""
    stack = AsyncExitStack()
    value = await stack.enter_async_context(resource.open())
    try:
        yield value
    finally:
        try:
            await stack.aclose()
        except BaseException as error:
            if is_passing(error):
                raise
            _log.exception("resource %r could not be closed", resource.name)
