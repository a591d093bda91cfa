"""Capabilities: what a worker in any language declares about itself, in the words of the EmProps page and in ours.

The page has ``services``, ``components``, ``hardware``, ``quality_levels`` and ``customer_access``. Every other name is
an offer as our own workers have them, and meets the requirement of the same name (``core.matching.match``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from headrace.core.codec.value import document_text
from headrace.core.defaults import MAX_KEY_CHARACTERS
from headrace.core.matching.customers import Customers
from headrace.core.matching.match import fault_of_numbers
from headrace.core.validation import checked_key, checked_name
from headrace.errors import ConfigError

__all__ = ["Capabilities", "capabilities_of"]

_Word = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARACTERS)]
_Isolation = Literal["none", "loose", "strict"]
_Words = _Word | tuple[_Word, ...]


class _Access(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The customers of the jobs that the worker may be given, in the words of the page."""

    isolation: _Isolation = "loose"
    allow: tuple[_Word, ...] | None = None
    deny: tuple[_Word, ...] = ()


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """What the page has about a worker; other names are left alone."""

    services: _Words | None = None
    components: _Words | None = None
    hardware: dict[str, Any] | None = None
    quality_levels: _Words | None = None
    customer_access: _Access | None = None


_OF_JOBS = {"service_type": "services", "component": "components", "quality_level": "quality_levels"}
"""Names of the page that differ where a job requires them."""


class Capabilities(msgspec.Struct, frozen=True):
    """What a worker offers, and the customers of the jobs it takes."""

    offers: dict[str, Any]
    """By name, as ``core.matching.match`` takes them."""
    customers: Customers | None = None
    """None: all customers."""


def capabilities_of(document: Any, what: str = "capabilities") -> Capabilities:
    """Return what this document, as decoded from JSON, declares about a worker.

    ``services`` and ``components`` are a text or a list of texts; ``"all"`` meets every requirement. A worker that
    lists no ``quality_levels``, or ``"all"``, is not bound by them. Isolation ``none`` takes all jobs, ``loose`` (the
    default) those that ``allow`` and ``deny`` permit, ``strict`` those of one customer at a time.

    :raises ConfigError: it cannot be used; ``field`` names the part, beginning with ``what``
    """
    _checked(document_text, document, what, what)
    for name in document:
        _check_name(name, what)
    if (fault := fault_of_numbers(document)) is not None:
        raise ConfigError(f"{what}.{fault}", field=f"{what}.{fault.partition(' must ')[0]}")
    try:
        page = msgspec.convert(document, _Page)
    except msgspec.ValidationError as error:
        raise _misfit(error, what) from None
    offers = {name: one for name, one in document.items() if name != "customer_access" and one is not None}
    if page.quality_levels is not None and ("all" in _listed(page.quality_levels) or not page.quality_levels):
        del offers["quality_levels"]  # jobs treat a worker without them as one that has all
    return Capabilities(offers, _customers(page.customer_access, f"{what}.customer_access"))


def _misfit(error: msgspec.ValidationError, what: str) -> ConfigError:
    message, _, place = str(error).partition(" - at `$")
    place = f"{what}{place.rstrip('`')}"
    if place.endswith(".isolation"):
        message += f": it is one of {', '.join(get_args(_Isolation))}"
    if unknown := re.search(r"unknown field `(.*)`", message):
        message += f"; known are {', '.join(_Access.__struct_fields__)}"
        return ConfigError(f"{place}: {message}", field=f"{place}.{unknown[1]}")
    return ConfigError(f"{place}: {message}", field=place)


def _checked(check: Callable[[Any, str], object], value: Any, what: str, field: str) -> None:
    try:
        check(value, what)
    except ConfigError as error:
        raise ConfigError(str(error), field=field) from None


def _check_name(name: Any, what: str) -> None:
    _checked(checked_name, name, f"each name in {what}", what)
    if name in _OF_JOBS:
        text = f"{what}.{name} is what a job asks for: a worker lists `{_OF_JOBS[name]}`"
        raise ConfigError(text, field=f"{what}.{name}")
    if name.startswith("headrace."):
        text = f"{what}.{name}: a worker must not offer what begins with `headrace.`, headrace keeps that for itself"
        raise ConfigError(text, field=f"{what}.{name}")


def _listed(words: str | tuple[str, ...]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words


def _customers(access: _Access | None, what: str) -> Customers | None:
    """Return the customers of the jobs that the worker takes; None: all, in any queue."""
    if access is None:
        return None
    if access.allow is not None and not access.allow:
        text = f"{what}.allow is empty, so the worker would be given nothing: leave it out to allow everybody"
        raise ConfigError(text, field=f"{what}.allow")
    for name, given in (("allow", access.allow or ()), ("deny", access.deny)):
        if given and access.isolation == "none":
            text = f"{what}.{name}: isolation `none` takes everybody's jobs; say `loose` to choose"
            raise ConfigError(text, field=f"{what}.{name}")
        for number, one in enumerate(given):
            place = f"{what}.{name}[{number}]"
            _checked(checked_key, one, place, place)
    chosen = Customers(
        allow=None if access.allow is None else frozenset(access.allow),
        deny=frozenset(access.deny),
        strict=access.isolation == "strict",
    )
    return None if chosen == Customers() else chosen
