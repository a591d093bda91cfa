"""Durable steps: the result of a part of a handler is stored with the job, and that part is not run again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.core.codec.json import Codec
from headrace.core.codec.value import decode_value, encode_value
from headrace.core.defaults import MAX_KEY_CHARACTERS
from headrace.core.entry import BEGIN, Kind
from headrace.core.validation import checked_name, plain
from headrace.engine import MAX_BATCH
from headrace.errors import ConfigError
from headrace.worker.handler import return_codec
from headrace.worker.process.loops import on_loop, wait_on_loop

if TYPE_CHECKING:
    from headrace.worker.execution.context import Context
    from headrace.worker.execution.writers import EntryWriter

__all__ = ["run_step", "run_step_blocking"]


async def run_step(
    ctx: Context, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The result of the step, from this attempt or an earlier one."""
    writer = ctx._caller.entry_writer()
    if writer is None:
        return (await _call(ctx, fn, args, kwargs))[0]
    ctx.check()
    ctx.heartbeat()
    text = await on_loop(writer.loop, _begin(writer, ctx, name))
    codec = _codec(fn)
    if text is None:
        try:
            value, stopped = await _call(ctx, fn, args, kwargs)
            text = encode_value(codec, value, f"step {name!r}")
        except BaseException:
            writer.stepped.discard(name)  # it may be tried again
            raise
        await on_loop(writer.loop, _keep(writer, name, text))
        if stopped:
            raise asyncio.CancelledError
    # Decoded from JSON the first time, too, so that the result is the same in every attempt.
    return decode_value(codec, text, f"step {name!r}")


def run_step_blocking(
    ctx: Context, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The same on the thread of a plain handler, where the function is called."""
    writer = ctx._caller.entry_writer()
    if writer is None:
        return fn(*args, **kwargs)
    ctx.check()
    ctx.heartbeat()
    text = wait_on_loop(writer.loop, _begin(writer, ctx, name), "ctx.step")
    codec = _codec(fn)
    if text is None:
        try:
            text = encode_value(codec, fn(*args, **kwargs), f"step {name!r}")
        except BaseException:
            writer.stepped.discard(name)
            raise
        wait_on_loop(writer.loop, _keep(writer, name, text), "ctx.step")
    return decode_value(codec, text, f"step {name!r}")


async def _begin(writer: EntryWriter, ctx: Context, name: str) -> str | None:
    """The result of the step in an earlier attempt, if there is one."""
    # Before anything is done that cannot be kept.
    checked_name(name, "a step's name, the same in every attempt,", MAX_KEY_CHARACTERS)
    if name in writer.stepped:
        raise ConfigError(f"step {name!r} was there before in this attempt: give each step a name of its own")
    writer.stepped.add(name)
    if writer.steps is None:
        found = await _earlier(writer, ctx) if ctx.attempt > 1 else {}
        writer.steps = found if writer.steps is None else writer.steps  # a step beside this one may have asked, too
    return writer.steps.get(name)


async def _earlier(writer: EntryWriter, ctx: Context) -> dict[str, str]:
    steps: dict[str, str] = {}
    after = BEGIN
    while found := await writer.writer.engine.entries.tail(ctx.job_id, Kind.STEP, after):
        steps |= {entry.name: entry.data for entry in found if entry.name is not None}
        after = found[-1].cursor
        if len(found) < MAX_BATCH:
            break
    return steps


async def _keep(writer: EntryWriter, name: str, text: str) -> None:
    writer.add(Kind.STEP, text, plain(name))
    await writer.flush()
    if writer.steps is not None:
        writer.steps[name] = text


async def _call(
    ctx: Context, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """What the function returns, and whether the run was stopped meanwhile."""
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        return await fn(*args, **kwargs), False
    # An error is passed on as a value: a SystemExit raised in the task in between would end the loop.
    calling = asyncio.ensure_future(asyncio.to_thread(_caught, fn, args, kwargs))
    try:
        value, error = await asyncio.shield(calling)
    except asyncio.CancelledError:
        if ctx.stopping is None:  # cancelled from elsewhere, where nothing waits for it
            calling.cancel()
            raise
        # A thread cannot be stopped, and what it does must not be done again: it is waited for, and then kept.
        await asyncio.wait([calling])
        if calling.cancelled() or calling.exception() is not None:
            raise
        value, error = calling.result()
        if error is not None or inspect.iscoroutine(value):
            raise
        return value, True
    if error is not None:
        raise error
    return (await value if inspect.isawaitable(value) else value), False


def _caught(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, BaseException | None]:
    try:
        return fn(*args, **kwargs), None
    except BaseException as error:
        return None, error


def _codec(fn: Callable[..., Any]) -> Codec:
    try:
        return _known(fn)
    except TypeError:  # a method of something that cannot be hashed
        return return_codec(fn)


_known = lru_cache(maxsize=256)(return_codec)
