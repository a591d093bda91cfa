"""Checks that the URLs of a project have the status pages of its job views.

Django's system checks call it (``runserver``, ``migrate``, ``test``, ``check``); a server that runs none calls it with
the first request of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.signals import request_started
from django.urls import get_resolver

from headrace.endpoints.status import StatusPages
from headrace.errors import ConfigError

__all__ = ["check_first_request", "check_views", "mark_choice", "mark_pages"]

_CHOICE, _PAGES = "headrace_choice", "headrace_pages"

Choose = Callable[[Iterable[StatusPages]], object]
"""Raises ConfigError if these pages of a project do not fit the view."""


def mark_choice(view: Any, choose: Choose) -> None:
    """Mark a view as one that is a job; decorators keep it."""
    setattr(view, _CHOICE, choose)


def mark_pages(view: Any, pages: StatusPages) -> None:
    """Mark a view as one that shows jobs of these pages."""
    setattr(view, _PAGES, pages)


def check_views(**given: Any) -> list[checks.CheckMessage]:
    """Return an error for each view that is a job and whose status pages the URLs do not have."""
    return [checks.Error(str(error), obj=view, id="headrace.E001") for view, error in _wrong_pairs()]


def check_first_request(**given: Any) -> None:
    """Check until the views are right; :raises ConfigError: a view and its status pages do not fit"""
    for _, error in _wrong_pairs():
        raise error
    request_started.disconnect(check_first_request)


def _wrong_pairs() -> Iterator[tuple[str, ConfigError]]:
    if not getattr(settings, "ROOT_URLCONF", None):
        return
    try:
        views = list(_views(get_resolver().url_patterns))
    except Exception:  # Django reports it when it loads the URLs itself
        return
    shown = [pages for view in views if (pages := getattr(view, _PAGES, None)) is not None]
    for view in views:
        if (choose := getattr(view, _CHOICE, None)) is not None:
            try:
                choose(shown)
            except ConfigError as error:
                yield f"{view.__module__}.{view.__qualname__}", error


def _views(patterns: Iterable[Any]) -> Iterator[Any]:
    for one in patterns:
        if (inner := getattr(one, "url_patterns", None)) is not None:
            yield from _views(inner)
        else:
            yield one.callback
