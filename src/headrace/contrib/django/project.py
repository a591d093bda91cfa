"""The App of a Django project, made from its settings: one in each process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections, connections
from django.utils.module_loading import import_string

from headrace.app import App
from headrace.errors import ConfigError
from headrace.worker.execution.context import Context
from headrace.worker.execution.hooks import CallNext

__all__ = ["database", "project_app"]

_KNOWN = ("URL", "DATABASE", "APP", "IMPORTS", "NAMESPACE")

_lock = threading.RLock()  # the module that APP names may request the App, too, and is then refused
_made: dict[str, App] = {}
"""The App, once it was requested."""


def project_app() -> App:
    """Return the App that ``settings.HEADRACE`` describes: made on the first call, the same from then on;
    :raises ConfigError: naming the setting"""
    with _lock:
        if "app" not in _made:
            _made["app"] = _new_app()
        return _made["app"]


def database() -> str | None:
    """Return the alias of the project's database that holds the jobs; None: they are elsewhere."""
    alias: str | None = _settings().get("DATABASE")
    return alias


def _settings() -> Mapping[str, Any]:
    given = getattr(settings, "HEADRACE", None)
    if not isinstance(given, Mapping):
        raise ConfigError('the settings have no HEADRACE: say HEADRACE = {"DATABASE": "default"}, or {"URL": ...}')
    if unknown := [name for name in given if name not in _KNOWN]:
        raise ConfigError(f"HEADRACE has an unknown setting {unknown[0]!r}; known are {', '.join(_KNOWN)}")
    return given


def _new_app() -> App:
    given = _settings()
    if "APP" in given:
        if others := [name for name in ("URL", "IMPORTS", "NAMESPACE") if name in given]:
            raise ConfigError(f"HEADRACE: {others[0]} is said where the App is made, which is APP")
        app = import_string(given["APP"])
        if not isinstance(app, App):
            raise ConfigError(f"HEADRACE: APP must name an App, and {given['APP']} is {app!r}")
    else:
        url = given.get("URL") or (_url_of(given["DATABASE"]) if "DATABASE" in given else None)
        app = App(url, imports=given.get("IMPORTS", ()), namespace=given.get("NAMESPACE"))
    app.middleware(_with_fresh_connections)
    return app


def _url_of(alias: str) -> str:
    """Return the URL of a database of the project; :raises ConfigError: it is not PostgreSQL"""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ConfigError(
            f"HEADRACE: DATABASE {alias!r} is {connection.vendor}, and jobs can be in PostgreSQL beside your tables:"
            ' say HEADRACE = {"URL": "sqlite:///jobs.db"}, a file of their own, instead'
        )
    given = connection.settings_dict
    user, password, host = (str(given.get(name) or "") for name in ("USER", "PASSWORD", "HOST"))
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    # A host that begins with a slash is a directory with a socket, which goes into the query.
    query = {"host": host} if host.startswith("/") else {}
    place = "" if query else host or "localhost"
    port = f":{given['PORT']}" if given.get("PORT") else ""
    if query and given.get("PORT"):
        query["port"], port = str(given["PORT"]), ""
    more = f"?{urlencode(query)}" if query else ""
    return f"postgresql://{login}{'@' if login else ''}{place}{port}/{quote(str(given['NAME']), safe='')}{more}"


async def _with_fresh_connections(ctx: Context, call_next: CallNext) -> Any:
    """Run a coroutine function so that the synchronous parts of Django that it uses share one thread and its
    connections."""
    close = sync_to_async(close_old_connections)
    await close()
    try:
        return await call_next()
    finally:
        await close()
