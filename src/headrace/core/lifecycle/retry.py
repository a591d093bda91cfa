"""Retry policies: whether another attempt is worth making, and when."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace.core.defaults import MAX_KEY_CHARACTERS
from headrace.core.times import Seconds, seconds
from headrace.core.validation import is_text, plain, whole
from headrace.errors import ConfigError, shown

__all__ = ["Backoff", "Retry", "error_names"]

Backoff = Callable[[int, Exception], Seconds]
"""Returns how long to wait before a retry: called with its number, from 1, and with the error of the attempt."""


def error_names(error: type[BaseException]) -> tuple[str, ...]:
    """Return every name of an error class: its own and its bases', plain and qualified."""
    names: list[str] = []
    for cls in error.__mro__:
        if cls not in (object, BaseException):
            names += [cls.__qualname__, f"{cls.__module__}.{cls.__qualname__}"]
    return tuple(names)


_TIMEOUT_NAMES = frozenset({"timeouterror", "builtins.timeouterror", "timeout"})
"""The names of a timeout in ``give_up_on``, any case: of its class, not of those above it; the type of its error and
the status of the EmProps page."""


def _names(errors: Sequence[type[BaseException] | str], what: str) -> tuple[str, ...]:
    if isinstance(errors, str) or not isinstance(errors, Sequence):
        raise ConfigError(f"{what} must be a sequence of exception classes or names, not {shown(errors)}")
    if len(errors) > _MAX_POLICY_ENTRIES:
        raise ConfigError(f"{what} must name at most {_MAX_POLICY_ENTRIES} exceptions, not {len(errors)}")
    names = []
    for error in errors:
        if isinstance(error, str):
            if len(error) > MAX_KEY_CHARACTERS or not is_text(error):
                raise ConfigError(
                    f"each of {what} must be the name of an exception, at most {MAX_KEY_CHARACTERS} characters of text"
                )
            names.append(plain(error))
        elif isinstance(error, type) and issubclass(error, BaseException):
            names.append(f"{error.__module__}.{error.__qualname__}")
        else:
            raise ConfigError(f"{what} must hold exception classes or names, not {shown(error)}")
    return tuple(names)


_MAX_POLICY_ENTRIES = 100
"""Maximum delays, and exceptions, that a policy may name: it is stored with every job."""
_MAX_FACTOR = 1e6
_DEFAULT_CAP_SECONDS = 300.0


def _cap(cap: Seconds | None, initial: float, *, grows: bool) -> float:
    """Return the longest exponential delay; the default is never below the first delay.

    :raises ConfigError: the cap is below the first delay, which it would shorten
    """
    if cap is None:
        return max(_DEFAULT_CAP_SECONDS, initial)
    longest = seconds(cap, "cap")
    if grows and longest < initial:
        raise ConfigError(
            f"cap must be at least initial ({initial:g} s), not {longest:g} s: it is the longest delay, and initial is"
            " the first; leave cap out to let it follow initial"
        )
    return longest


def _delays(backoff: object) -> Literal["exponential", "fixed"] | tuple[float, ...]:
    if backoff == "exponential":
        return "exponential"
    if backoff == "fixed":
        return "fixed"
    # Not an iterator: its delays could be read only once.
    if isinstance(backoff, str | bytes) or not isinstance(backoff, Sequence):
        accepted = "'exponential', 'fixed', a list of delays such as [5, 15, 30], or a function"
        raise ConfigError(f"backoff must be {accepted}, not {shown(backoff)}")
    if not 1 <= len(backoff) <= _MAX_POLICY_ENTRIES:
        raise ConfigError(
            f"backoff must name from 1 to {_MAX_POLICY_ENTRIES} delays (the last holds on), not {len(backoff)}"
        )
    return tuple(seconds(delay, "backoff") for delay in backoff)


def _function(fn: Callable[..., object]) -> Backoff:
    """Refuse what could not be called as a backoff."""
    if not isinstance(fn, type) and not any(map(inspect.iscoroutinefunction, (fn, type(fn).__call__))):
        try:
            inspect.signature(fn).bind(1, Exception())
        except (TypeError, ValueError):  # ValueError: a builtin's signature is not known
            pass
        else:
            good: Backoff = fn  # type: ignore[assignment]  # what it returns is checked whenever it was called
            return good
    raise ConfigError(f"as a function, backoff is `def name(retry: int, error: Exception) -> float`, not {shown(fn)}")


class _Called:
    """Holds the function of a policy, which is not a field: a function cannot be stored."""

    __slots__ = ("_fn",)


@dataclass(frozen=True, init=False, slots=True)
class Retry(_Called):
    """A retry policy: how often a job is retried, after which errors, and with which delays (backoff)."""

    max_retries: int
    backoff: Literal["exponential", "fixed"] | tuple[float, ...]
    """With a function: what applies where it cannot be called."""
    initial: float
    factor: float
    cap: float
    """The longest exponential delay; five minutes, or ``initial`` where that is longer, unless it was given."""
    jitter: bool
    retry_on: tuple[str, ...]
    give_up_on: tuple[str, ...]
    by_function: bool = field(init=False, default=False)
    """Whether a function of the task returns the delays."""

    def __init__(
        self,
        max_retries: int = 3,
        *,
        backoff: Literal["exponential", "fixed"] | Sequence[Seconds] | Backoff = "exponential",
        initial: Seconds = 2.0,
        factor: float = 2.0,
        cap: Seconds | None = None,
        jitter: bool = True,
        retry_on: Sequence[type[BaseException] | str] = (),
        give_up_on: Sequence[type[BaseException] | str] = (),
    ) -> None:
        retries, fn = whole(max_retries, "max_retries", 0), _function(backoff) if callable(backoff) else None
        delays = _delays("exponential" if fn is not None else backoff)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= _MAX_FACTOR:
            raise ConfigError(f"factor must be a number from 1 to {_MAX_FACTOR:g}, not {shown(factor)}")
        first = seconds(initial, "initial")
        put = object.__setattr__  # frozen: the one place that fills it
        put(self, "max_retries", retries)
        put(self, "backoff", delays)
        put(self, "initial", first)
        put(self, "factor", float(factor))
        put(self, "cap", _cap(cap, first, grows=fn is None and delays == "exponential"))
        put(self, "jitter", bool(jitter))
        put(self, "retry_on", _names(retry_on, "retry_on"))
        put(self, "give_up_on", _names(give_up_on, "give_up_on"))
        put(self, "by_function", fn is not None)
        put(self, "_fn", fn)

    @property
    def function(self) -> Backoff | None:
        """The function that was given as ``backoff``; None also where the policy was read from the store."""
        fn: Backoff | None = getattr(self, "_fn", None)
        return fn

    @property
    def max_attempts(self) -> int:
        """The budget: the first attempt and its retries."""
        return self.max_retries + 1

    def delay(self, n: int, chance: float, *, jitter: bool = False) -> float:
        """Return the seconds before retry ``n`` (from 0). With jitter, ``chance`` in [0, 1) makes it 50 to 100 % of
        that. ``jitter``: even if the policy has none.

        ``cap`` bounds exponential delays only. A list of delays is used as it is; its last delay repeats.
        """
        if isinstance(self.backoff, tuple):
            whole = self.backoff[min(n, len(self.backoff) - 1)]
        elif self.backoff == "fixed":
            whole = self.initial
        else:
            try:
                whole = min(self.initial * self.factor**n, self.cap)
            except OverflowError:
                whole = self.cap
        return whole * (0.5 + chance / 2) if self.jitter or jitter else whole

    def allows(self, names: Sequence[str]) -> bool:
        """Return whether an error with these class names may be retried; ``give_up_on`` wins over ``retry_on``."""
        return self.objection(names) is None

    def objection(self, names: Sequence[str]) -> str | None:
        """Return why an error with these class names, its own first, may not be retried, in words; None: it may."""
        if (given_up := _given_up(next((name for name in names if name in self.give_up_on), None))) is not None:
            return given_up
        if not self.retry_on or any(name in self.retry_on for name in names):
            return None
        return f"retry_on does not name {names[0] if names else 'it'}"

    def timeout_objection(self) -> str | None:
        """Return why a timeout may not be retried, in words; None: it may.

        ``retry_on`` decides about errors of the handler, and a timeout is none: only ``TimeoutError`` in
        ``give_up_on`` rules it out.
        """
        return _given_up(next((name for name in self.give_up_on if name.lower() in _TIMEOUT_NAMES), None))


def _given_up(named: str | None) -> str | None:
    return None if named is None else f"give_up_on names {named.removeprefix('builtins.')}"
