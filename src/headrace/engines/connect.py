"""From a URL to an engine: the only module that names engines."""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.errors import ConfigError, MissingExtra, NotSupported
from headrace.runtime.host import Host

__all__ = ["GROUP", "connect", "redact"]

GROUP = "headrace.engines"
"""Entry points by which other packages add engines. The name is the URL's scheme. The object is a function that takes
the URL, the Rules and the Host, and the App's ``namespace`` by name, and returns an Engine; it touches no store."""

_OF_THE_SERVER = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "host", "port", "passfile", "target_session_attrs",
)  # fmt: skip
"""Parameters of a PostgreSQL URL that are for the driver."""
_SPELLINGS = {"postgres": "postgresql", "postgresql+asyncpg": "postgresql"}
_OWN = {
    "sqlite": "sqlite:///FILE",
    "postgresql": "postgresql://USER@HOST/DATABASE",
    "hub+https": "hub+https://HOST",
    "memory": "memory://",
}
_HUBS = {"hub+http": False, "hub+https": True}
"""The schemes of hubs, and whether they speak TLS."""
"""The schemes of the engines that come with headrace, and the forms of their URLs."""


def connect(url: str, rules: Rules, host: Host, *, namespace: str = "headrace", key: str | None = None) -> Engine:
    """Return the engine that a URL names; touches nothing until it is opened. ``key``: for a hub.

    :raises ConfigError, MissingExtra, NotSupported:
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"not a URL: {redact(url)!r} ({error})") from None
    scheme = _SPELLINGS.get(parts.scheme, parts.scheme)
    if scheme in ("sqlite", "memory") and namespace != "headrace":
        raise NotSupported(f"{scheme}:// holds one namespace: use another {'file' if scheme == 'sqlite' else 'App'}")
    if scheme in _HUBS:
        return _remote(parts, rules, host, namespace, key)
    if scheme == "memory":
        return _memory(parts, rules, host)
    if scheme == "sqlite":
        return _sqlite(parts, rules, host)
    for point in entry_points(group=GROUP, name=scheme):
        engine: Engine = point.load()(url, rules, host, namespace=namespace)
        return engine
    if scheme == "postgresql":
        return _postgres(parts, url, rules, host, namespace)
    others = sorted({point.name for point in entry_points(group=GROUP)} - _OWN.keys())
    known = [*_OWN.values(), *(f"{one}://" for one in others)]
    raise ConfigError(f"no engine for {redact(url)!r}: there are {', '.join(known[:-1])} and {known[-1]}")


def redact(url: str) -> str:
    """Return the URL without its passwords, for messages and logs."""
    head, sign, tail = url.partition("://")
    place, slash, path = tail.partition("/")
    user, at, machine = place.rpartition("@")
    if at and head in _HUBS:  # a key has no field there, so what is there may be one
        url = f"{head}{sign}***@{machine}{slash}{path}"
    elif at and ":" in user:
        url = f"{head}{sign}{user.partition(':')[0]}:***@{machine}{slash}{path}"
    # The one parameter that is a URL, too.
    before, name, rest = url.partition("listen_url=")
    value, more, others = rest.partition("&")
    return url if not name else f"{before}{name}{redact(unquote(value))}{more}{others}"


def _query(parts: SplitResult, known: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            there = f"known are {', '.join(known)}" if known else "there are none"
            raise ConfigError(f"{parts.scheme}://: unknown parameter {name!r} in the URL; {there}")
        if name in found:
            raise ConfigError(f"{parts.scheme}://: the parameter {name!r} stands twice in the URL")
        found[name] = value
    if parts.fragment:
        raise ConfigError(f"{parts.scheme}://: '#' in a URL begins a fragment; write it as %23")
    return found


def _memory(parts: SplitResult, rules: Rules, host: Host) -> Engine:
    from headrace.engines.memory import MemoryEngine

    _query(parts, ())
    if parts.netloc or parts.path.strip("/"):
        raise ConfigError("memory:// takes neither a host nor a path: every App has a store of its own")
    return MemoryEngine(rules, host)


def _sqlite(parts: SplitResult, rules: Rules, host: Host) -> Engine:
    from headrace.engines.sqlite import MODES, SqliteEngine

    query = _query(parts, ("synchronous", "mode"))
    path = unquote(parts.path[1:])
    if parts.netloc:
        wrong = f"{parts.netloc}{parts.path}"
        raise ConfigError(f"sqlite://{wrong} has a host; a relative path takes three slashes: sqlite:///{wrong}")
    if not path or path.endswith("/"):
        raise ConfigError("sqlite:// names no file: sqlite:///relative.db or sqlite:////absolute.db")
    if path == ":memory:":
        raise ConfigError("sqlite:///:memory: would be another store for every connection: use memory://")
    synchronous: Literal["full", "normal"] = "normal" if query.get("synchronous") == "normal" else "full"
    if query.get("synchronous", "full") != synchronous:
        raise ConfigError(f"sqlite://: synchronous must be 'full' or 'normal', not {query['synchronous']!r}")
    modes = {f"{one:04o}": one for one in MODES}
    mode = query.get("mode", "0600")
    if mode not in modes:
        raise ConfigError(
            f"sqlite://: mode must be {', '.join(modes)} or left out, not {mode!r}: whoever can read the file can read"
            " every job, so that none but its user and its group may"
        )
    # Made absolute here: a program that changes its directory later still means the same file.
    return SqliteEngine(os.path.abspath(path), rules=rules, host=host, synchronous=synchronous, mode=modes[mode])


def _remote(parts: SplitResult, rules: Rules, host: Host, namespace: str, key: str | None) -> Engine:
    scheme = f"{parts.scheme}://"
    if find_spec("websockets") is None:
        raise MissingExtra(scheme, "websockets", "hub")
    from headrace.engines.remote import RemoteEngine
    from headrace.engines.remote.connection import Address

    _query(parts, ())
    if parts.username is not None:
        raise ConfigError(f"{scheme}: the key has no place in the URL: say it as HEADRACE_KEY, or as App(key=...)")
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{scheme}: {error}") from None
    if not parts.hostname:
        raise ConfigError(f"{scheme} names no host: {scheme}HOST, or {scheme}HOST:PORT")
    if namespace != "headrace":
        raise NotSupported(f"{scheme} has the namespace of its hub: set it there, not here ({namespace!r})")
    tls = _HUBS[parts.scheme]
    address = Address(
        host=parts.hostname,
        port=port or (443 if tls else 80),
        tls=tls,
        root=quote(unquote(parts.path).rstrip("/")),
        key=key,
    )
    return RemoteEngine(address, rules=rules, host=host)


def _postgres(parts: SplitResult, url: str, rules: Rules, host: Host, namespace: str) -> Engine:
    if find_spec("asyncpg") is None:
        raise MissingExtra("postgresql://", "asyncpg", "postgres")
    from headrace.engines.postgres import PostgresEngine

    own = ("schema", "pool", "listen_url", "pgbouncer", "migrate")
    query = _query(parts, (*own, *_OF_THE_SERVER))
    if query.get("migrate", "auto") != "auto":
        raise ConfigError(f"postgresql://: migrate must be 'auto' or left out, not {query['migrate']!r}")
    if query.get("pgbouncer", "0") not in ("0", "1"):
        raise ConfigError(f"postgresql://: pgbouncer must be 1 or left out, not {query['pgbouncer']!r}")
    pool = query.get("pool", "8")
    if not pool.isdecimal():
        raise ConfigError(f"postgresql://: pool must be a number of connections, not {pool!r}")
    rest = urlencode([(name, query[name]) for name in _OF_THE_SERVER if name in query])
    return PostgresEngine(
        urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")),
        rules=rules,
        host=host,
        schema=query.get("schema", namespace),
        pool=int(pool),
        listen_url=_plain(query["listen_url"]) if "listen_url" in query else None,
        pgbouncer=query.get("pgbouncer") == "1",
        migrate="migrate" in query,
    )


def _plain(url: str) -> str:
    """Return a URL as the driver knows it."""
    scheme, sign, rest = url.partition("://")
    if _SPELLINGS.get(scheme, scheme) != "postgresql" or not sign:
        raise ConfigError(
            f"postgresql://: listen_url must be a postgresql:// URL (escape & as %26), not {redact(url)!r}"
        )
    return f"postgresql://{rest}"
