"""Retry policies: whether another attempt is worth making, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.errors import LONGEST, ConfigError

__all__ = ["Retry", "Seconds", "error_names", "seconds"]

Seconds = float | timedelta


def seconds(value: Seconds, what: str) -> float:
    """A duration in seconds; refuses negatives, NaN and more than a century by name."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise ConfigError(f"{what} must be seconds or a timedelta, not {value!r}")
    number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 <= number <= LONGEST:
        raise ConfigError(f"{what} must be finite, at most a century, and not negative, not {value!r}")
    return number


def error_names(error: type[BaseException]) -> tuple[str, ...]:
    """Every name an error class answers to: its own and its bases', plain and qualified."""
    names: list[str] = []
    for cls in error.__mro__:
        if cls not in (object, BaseException):
            names += [cls.__qualname__, f"{cls.__module__}.{cls.__qualname__}"]
    return tuple(names)


def _names(errors: Sequence[type[BaseException] | str], what: str) -> tuple[str, ...]:
    if isinstance(errors, str) or not isinstance(errors, Sequence):
        raise ConfigError(f"{what} must be a sequence of exception classes or names, not {errors!r}")
    names = []
    for error in errors:
        if isinstance(error, str):
            names.append(error)
        elif isinstance(error, type) and issubclass(error, BaseException):
            names.append(f"{error.__module__}.{error.__qualname__}")
        else:
            raise ConfigError(f"{what} must hold exception classes or names, not {error!r}")
    return tuple(names)


@dataclass(frozen=True, init=False, slots=True)
class Retry:
    """A retry policy: how often a job is retried, after which errors, and with which delays (backoff)."""

    max_retries: int
    backoff: Literal["exponential", "fixed"] | tuple[float, ...]
    initial: float
    factor: float
    cap: float
    jitter: bool
    retry_on: tuple[str, ...]
    give_up_on: tuple[str, ...]

    def __init__(
        self,
        max_retries: int = 3,
        *,
        backoff: Literal["exponential", "fixed"] | Sequence[Seconds] = "exponential",
        initial: Seconds = 2.0,
        factor: float = 2.0,
        cap: Seconds = 300.0,
        jitter: bool = True,
        retry_on: Sequence[type[BaseException] | str] = (),
        give_up_on: Sequence[type[BaseException] | str] = (),
    ) -> None:
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ConfigError(f"max_retries must be a whole number from 0, not {max_retries!r}")
        delays: Literal["exponential", "fixed"] | tuple[float, ...]
        if isinstance(backoff, str):
            if backoff not in ("exponential", "fixed"):
                raise ConfigError(f"backoff must be 'exponential', 'fixed' or a list of seconds, not {backoff!r}")
            delays = backoff
        else:
            delays = tuple(seconds(delay, "backoff") for delay in backoff)
            if not delays:
                raise ConfigError("backoff must name at least one delay")
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor < float("inf"):
            raise ConfigError(f"factor must be a number from 1, not {factor!r}")
        put = object.__setattr__  # frozen: the one place that fills it
        put(self, "max_retries", max_retries)
        put(self, "backoff", delays)
        put(self, "initial", seconds(initial, "initial"))
        put(self, "factor", float(factor))
        put(self, "cap", seconds(cap, "cap"))
        put(self, "jitter", bool(jitter))
        put(self, "retry_on", _names(retry_on, "retry_on"))
        put(self, "give_up_on", _names(give_up_on, "give_up_on"))

    @property
    def max_attempts(self) -> int:
        """The budget: the first attempt and its retries."""
        return self.max_retries + 1

    def delay(self, n: int, chance: float) -> float:
        """Seconds before retry ``n`` (from 0). With jitter, ``chance`` in [0, 1) makes it 50 to 100 % of the whole.

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
        return whole * (0.5 + chance / 2) if self.jitter else whole

    def allows(self, names: Sequence[str]) -> bool:
        """Whether an error with these class names may be retried; ``give_up_on`` wins over ``retry_on``."""
        if any(name in self.give_up_on for name in names):
            return False
        return not self.retry_on or any(name in self.retry_on for name in names)
