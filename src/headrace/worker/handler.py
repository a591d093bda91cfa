"""What a worker runs: a function, what its arguments and result must be, and the policy of its jobs."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headrace.core import defaults, validation
from headrace.core.codec.json import Codec, Parameter, RecordCodec, Unsupported
from headrace.core.codec.roundtrip import Misfit
from headrace.core.codec.value import StreamRef, decode_value, encode_value, item_of_parameter, item_of_return
from headrace.core.job import Job, OnDuplicate
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.retry import Retry
from headrace.core.limits.settings import TaskRule
from headrace.core.status import Status
from headrace.errors import ConfigError, InvalidPayload, NotSupported, PayloadTooLarge, shown

if TYPE_CHECKING:
    from headrace.worker.execution.tracing import Tracing

__all__ = ["Bulk", "Described", "Handler", "Mode", "Policy", "check_task_name", "return_codec"]

_SAFE_PAYLOAD_CHARACTERS = defaults.MAX_PAYLOAD_BYTES // 4
"""Characters that are never too many bytes."""

Mode = Literal["async", "thread", "process"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs of a task are treated unless a submit says otherwise."""

    queue: str = "default"
    priority: int | None = None
    """None: that of the job that submits it, else the default."""
    retry: Retry = Retry()
    timeout: float | None = 1800.0
    heartbeat: float | None = None
    remote_heartbeat: float | None = None
    retention: Kept | None = None
    dedup: str | None = None
    """A key, or a template of the parameters such as ``report:{year}``."""
    dedup_for: float | None = None
    on_duplicate: OnDuplicate = "return"
    concurrency_key: str | None = None
    """A template of the parameters such as ``customer:{customer_id}``."""
    limits: TaskRule = TaskRule()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    requires: dict[str, Any] = {}
    schedule: Any = None
    """A ``Cron``, ``Every`` or ``Continuous``, when the task submits itself."""


class Bulk(msgspec.Struct, frozen=True):
    """A function that does many jobs in one call, and how they are collected."""

    fn: Callable[..., Awaitable[Sequence[Any]]]
    takes_context: bool
    size: int
    """How many at most."""
    wait: float
    """Seconds after the first that others are waited for."""


class Described(msgspec.Struct, frozen=True):
    """What is kept of an error beside its type, message and traceback."""

    details: dict[str, Any] = {}
    final: bool = False
    """No further attempt is worth making."""


class Handler:
    """A function under a task's name, with the codec of its signature; read once, at decoration."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        run_in: Literal["process"] | None = None,
        policy: Policy | None = None,
    ) -> None:
        """
        :raises ConfigError: the signature or its annotations cannot be stored as JSON
        """
        self.fn = fn
        self.name, self.aliases = _check_names(name if name is not None else getattr(fn, "__name__", ""), aliases)
        self.policy = policy or Policy()
        self.mode = _mode(fn, self.name, run_in)
        self.middleware: tuple[Callable[..., Awaitable[Any]], ...] = ()
        """What is called around it, the outermost first."""
        self.tracing: Tracing | None = None
        """What makes a span of every run."""
        self.callbacks: Mapping[Status, tuple[Callable[[Job], object], ...]] | None = None
        """What is called when the store has accepted that an attempt left its job in a status."""
        self.describe: Callable[[BaseException], Described] | None = None
        """What an error of it says beside its message, and whether another attempt is worth making."""
        self.uncounted: frozenset[str] = frozenset()
        """The parameters that do not count when two requests with one key are compared."""
        self.bulk: Bulk | None = None
        """How its jobs are done many at a time."""
        self.streams = inspect.isasyncgenfunction(fn)
        """Whether it yields items; its result is then how many."""
        self.sources: dict[str, Codec] = {}
        """The parameters that are streams of other jobs, and the codec of their items."""
        hints = read_hints(fn)
        parameters = list(inspect.signature(fn).parameters.values())
        if parameters and parameters[0].name in ("self", "cls") and parameters[0].name not in hints:
            raise ConfigError(f"task {self.name!r} is a method: a worker has no {parameters[0].name!r} to call it on")
        self.takes_context = bool(parameters) and is_context(parameters[0], hints)
        self.parameters = tuple(self._parameter(one, hints) for one in parameters[self.takes_context :])
        self._signature = inspect.Signature(parameters[self.takes_context :])
        self._positional = [one.name for one in parameters[self.takes_context :] if one.kind is not one.KEYWORD_ONLY]
        self._names = frozenset(one.name for one in self.parameters)
        self._required = frozenset(one.name for one in self.parameters if one.required)
        # How many positional arguments are all it takes; never, if some must be given by name.
        self._complete = len(self._positional) if self._required <= set(self._positional) else -1
        self.returns = item_of_return(_hint(hints, "return")) if self.streams else _hint(hints, "return")
        """What it returns; of a stream, what its items are."""
        self.direct = False
        """Whether a run is nothing but a call on the loop, as most are."""
        self.surround(())
        try:
            self._payload = RecordCodec(self.name, self.parameters)
        except Unsupported as error:
            raise ConfigError(f"task {self.name!r}: {error}") from None
        self._item = self._codec(self.returns, "return annotation")
        self._result = Codec(int) if self.streams else self._item
        self._result_of, self._item_of = f"{self.name}: result", f"{self.name}: item"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ({self.mode}) at {self.place}>"

    @property
    def place(self) -> str:
        """Where the function is defined, as file:line."""
        code = getattr(inspect.unwrap(self.fn if self.bulk is None else self.bulk.fn), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.fn)

    def _parameter(self, one: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
        refused: dict[Any, str] = {
            inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
            inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments",
            inspect.Parameter.VAR_KEYWORD: "takes any keyword",
        }
        if why := refused.get(one.kind):
            message = "a payload is keyed by parameter name, so every parameter must be given by its own"
            raise ConfigError(f"task {self.name!r}: parameter {str(one)!r} {why}; {message}")
        if is_context(one, hints):
            raise ConfigError(f"task {self.name!r}: the Context must be the first parameter, not {one.name!r}")
        hint = _hint(hints, one.name)
        if (item := item_of_parameter(hint)) is not None:
            if self.mode != "async":
                raise NotSupported(f"task {self.name!r}: only a coroutine function can read the stream {one.name!r}")
            self.sources[one.name], hint = self._codec(item, f"parameter {one.name!r}"), StreamRef
        return Parameter(one.name, hint, one.default is one.empty, one.default)

    def _codec(self, annotation: Any, what: str) -> Codec:
        try:
            return Codec(annotation)
        except Unsupported as error:
            raise ConfigError(f"task {self.name!r}: {what}: {error}") from None

    def surround(self, middleware: Sequence[Callable[..., Awaitable[Any]]]) -> None:
        """Be called through these, the outermost first."""
        self.middleware = tuple(middleware)
        self.direct = self.mode == "async" and not middleware and not self.flows and self.tracing is None

    @property
    def flows(self) -> bool:
        """Whether it yields a stream, or reads one."""
        return self.streams or bool(self.sources)

    # -- payloads

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name, as passed: defaults are left to the code that will run the job."""
        if not kwargs and len(args) == self._complete:  # as most calls are
            bound = dict(zip(self._positional, args, strict=True))
            return self._no_text_for_bytes(bound) if self._payload.binary else bound
        bound = dict(zip(self._positional, args, strict=False))
        if len(bound) == len(args) and bound.keys().isdisjoint(kwargs):
            bound.update(kwargs)
            if self._required <= bound.keys() <= self._names:
                return self._no_text_for_bytes(bound)
        try:
            # Slow, and right about what is wrong.
            return self._no_text_for_bytes(dict(self._signature.bind(*args, **kwargs).arguments))
        except TypeError as error:
            strangers = [name for name in kwargs if name not in self._names]
            missing = [one.name for one in self.parameters if one.required and one.name not in bound]
            raise InvalidPayload(self.name, str(error), next(iter(strangers or missing), None)) from None

    def _no_text_for_bytes(self, bound: dict[str, Any]) -> dict[str, Any]:
        # In JSON bytes are base64 text, so a string would pass for them and come back as other bytes.
        for name in self._payload.binary:
            if isinstance(bound.get(name), str):
                raise InvalidPayload(self.name, "Expected `bytes`, got `str`", name)
        return bound

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The payload as JSON text; :raises InvalidPayload, PayloadTooLarge:"""
        return self.encode_bound(self.bind(args, kwargs))

    def encode_bound(self, arguments: Mapping[str, Any]) -> str:
        """The payload of arguments already bound to their names; raises like ``encode``."""
        if self.sources:
            referred = {name: value.reference() for name, value in arguments.items() if hasattr(value, "reference")}
            arguments = {**arguments, **referred}
        try:
            text = self._payload.encode(arguments)
        except Misfit as error:
            raise InvalidPayload(self.name, error.message, error.path or None) from None
        return text if len(text) <= _SAFE_PAYLOAD_CHARACTERS else self._sized(text)

    def check(self, payload_text: str) -> None:
        """Refuse a payload made elsewhere that does not fit; raises like ``encode``."""
        self.decode(self._sized(payload_text))

    def decode(self, payload_text: str) -> dict[str, Any]:
        """The keyword arguments for the function, without its Context; :raises InvalidPayload:"""
        try:
            return self._payload.decode(payload_text)
        except Misfit as error:
            raise InvalidPayload(self.name, error.message, error.path or None) from None

    def _sized(self, text: str) -> str:
        if (size := validation.size_of(text)) > (limit := defaults.MAX_PAYLOAD_BYTES):
            raise PayloadTooLarge(self.name, f"the payload is {size} bytes, at most {limit}; pass a reference instead")
        return text

    def schema(self) -> dict[str, Any]:
        """JSON schema of the payload."""
        return self._payload.schema()

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults that have a JSON form, in that form."""
        properties: dict[str, dict[str, Any]] = self.schema()["properties"]
        return {name: schema["default"] for name, schema in properties.items() if "default" in schema}

    # -- results

    def encode_result(self, value: Any) -> str:
        """The result as JSON text;
        :raises InvalidResult: not JSON, not what the return annotation says, or too large"""
        return encode_value(self._result, value, self._result_of)

    def encode_item(self, value: Any) -> str:
        """One item of its stream as JSON text; raises like ``encode_result``."""
        return encode_value(self._item, value, self._item_of)

    def decode_result(self, text: str) -> Any:
        """The result in the type of the return annotation;
        :raises InvalidResult: stored by another version of the function, of another type"""
        return decode_value(self._result, text, f"{self.name}: stored result")

    def decode_item(self, text: str) -> Any:
        """One item of its stream in the type of the annotation; raises like ``decode_result``."""
        return decode_value(self._item, text, f"{self.name}: stored item")


def return_codec(fn: Callable[..., Any]) -> Codec:
    """The codec of what a function returns, by its annotation; :raises ConfigError: that has no JSON form"""
    try:
        return Codec(_hint(read_hints(fn), "return"))
    except Unsupported as error:
        raise ConfigError(f"{getattr(fn, '__qualname__', fn)!r}: return annotation: {error}") from None


def check_task_name(name: Any) -> str:
    """A name that a task can have; :raises ConfigError:"""
    if not isinstance(name, str) or not name or name != name.strip():
        raise ConfigError(f"not a task name: {shown(name)}")
    return validation.checked_name(name, "a task's name")


def _check_names(name: str, aliases: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    if isinstance(aliases, str):
        raise ConfigError(f"task {name!r}: aliases must be a sequence of names, not a string")
    checked, *others = (check_task_name(one) for one in (name, *aliases))
    if name == "<lambda>":
        raise ConfigError("a lambda has no name of its own: pass name= to the decorator")
    return checked, tuple(others)


def _mode(fn: Callable[..., Any], name: str, run_in: str | None) -> Mode:
    if inspect.isgeneratorfunction(fn):
        raise NotSupported(f"task {name!r} is a plain generator: only `async def` functions stream what they yield")
    # Of an object that can be called, the method is what may be a coroutine function.
    is_async = any(map(inspect.iscoroutinefunction, (fn, type(fn).__call__))) or inspect.isasyncgenfunction(fn)
    if run_in is None:
        return "async" if is_async else "thread"
    if run_in != "process":
        raise ConfigError(f"task {name!r}: run_in must be 'process' or left out, not {shown(run_in)}")
    if is_async:
        raise ConfigError(f"task {name!r}: a process runs plain functions, not coroutines")
    module, path = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
    # The child finds the function again by name; `__main__` is imported there as the script it came from.
    if not module or module not in sys.modules or not all(part.isidentifier() for part in path.split(".")):
        where = f"{module}.{path}"
        raise ConfigError(f"task {name!r}: a process must be able to import the function, and cannot import {where}")
    return "process"


class _Unresolved(str):
    """An annotation with names that are not there at run time, for instance imported for the type checker only."""

    __slots__ = ()


def read_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations as types, each resolved on its own if they cannot be together."""
    # A function that declares another signature than what it wraps is read by that, as ``inspect.signature`` does.
    plain: Any = inspect.unwrap(fn, stop=lambda one: hasattr(one, "__signature__"))
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not inspect.isroutine(plain):
        plain = type(plain).__call__
    try:
        return typing.get_type_hints(plain, include_extras=True)
    except Exception:  # whatever evaluating an annotation may raise: the others are still good
        pass
    hints: dict[str, Any] = {}
    known = getattr(plain, "__globals__", {})
    names = dict(inspect.getclosurevars(plain).nonlocals) if inspect.isfunction(plain) else {}
    for name, annotation in getattr(plain, "__annotations__", {}).items():
        single = type("single", (), {"__annotations__": {name: annotation}})
        try:
            hints[name] = typing.get_type_hints(single, known, names, include_extras=True)[name]
        except Exception:
            hints[name] = _Unresolved(annotation)
    return hints


def _hint(hints: Mapping[str, Any], name: str) -> Any:
    """The type to store; what is unannotated, or could not be resolved, is anything that JSON can hold."""
    hint = hints.get(name, Any)
    return Any if hint is object or isinstance(hint, _Unresolved) else hint


def is_context(one: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    """Whether the parameter is annotated as the Context of the run."""
    hint = hints.get(one.name)
    if isinstance(hint, _Unresolved):
        return hint.strip("'\"").rpartition(".")[2] == "Context"
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return getattr(hint, "__headrace_context__", False) is True
