"""The App of a project for the command line: Django is set up, and the tasks of all applications are loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.db import close_old_connections
from django.utils.module_loading import autodiscover_modules

from headrace.app import App
from headrace.contrib.django.project import project_app

__all__ = ["app", "with_fresh_connections"]


def with_fresh_connections(app: App) -> None:
    """Have plain handlers find no connection that is broken or too old, and leave none: on their own threads."""
    for handler in app._handlers.values():
        if handler.mode == "thread" and not hasattr(handler.fn, _MARK):
            handler.fn = _fresh(handler.fn)


_MARK = "__headrace_fresh__"


def _fresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return fn(*args, **kwargs)
        finally:
            close_old_connections()

    setattr(called, _MARK, True)
    return called


def _ready() -> App:
    if not apps.ready:
        django.setup()
    autodiscover_modules("tasks")
    if getattr(settings, "ROOT_URLCONF", None):
        import_module(settings.ROOT_URLCONF)  # and with it the views that are jobs
    found = project_app()
    found._load()
    with_fresh_connections(found)
    return found


app = _ready()
