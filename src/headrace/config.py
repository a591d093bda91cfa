"""Settings: from defaults, files, the environment and code, each with its source."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from headrace.core.defaults import Retention, Rules
from headrace.core.times import UNITS, duration
from headrace.errors import MAX_DURATION_SECONDS, ConfigError

__all__ = ["OVERRIDE", "Secret", "Settings", "find_file", "url_source"]

_PREFIX = "HEADRACE_"
_MIN_NAME_SIMILARITY = 0.65
"""How near a variable's name must come to that of a setting to be taken for a typing error."""
_HIDDEN = ("key", "secret")
"""Settings with values that are in no message."""
_MIN_SECRET_CHARACTERS = 32
"""Characters of a secret."""

OVERRIDE = "app.override(...)"
"""The strongest source, which is also how the command line says ``--url``."""


class Secret(str):
    """A text that is not shown where values are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set for an App; later sources win.

    The order is: defaults, then ``headrace.toml`` or ``[tool.headrace]`` in ``pyproject.toml`` (searched from the
    current directory upward), then ``HEADRACE_*`` in the environment, then what is passed to ``App(...)``, then flags
    of the command line, then ``app.override``. Durations are seconds, or text with units: ``"30s"``, ``"1h30m"``.
    """

    url: str = "sqlite:///headrace.db"
    """The store: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``postgresql://user@host/database``,
    ``hub+https://host`` (the store of a hub) or ``memory://``."""
    key: Secret | None = None
    """The key for a hub, with the scope ``engine``; best said by the environment. It is never shown."""
    secret: Secret | None = None
    """What leases, webhooks and status pages are signed with is derived from it, and not stored then; the same for
    every hub and web application of a store, 32 characters or more, best said by the environment. It is never shown."""
    app: str | None = None
    """The App that commands use when none is named: ``MODULE:APP`` or ``MODULE``."""
    namespace: str = "headrace"
    """The schema on PostgreSQL, one for each store in the database; letters, digits, ``_`` and ``-``."""
    imports: tuple[str, ...] = ()
    """Modules a worker imports at its start, so that their tasks are registered."""
    log_format: Literal["text", "json"] = "text"
    """How ``headrace worker`` writes its log: ``text``, or ``json`` for one JSON object a line."""
    beat: float = Rules().beat
    """Seconds between two heartbeats of a worker."""
    lease: float = Rules().lease
    """Seconds without a heartbeat after which a worker counts as dead and its jobs go to others."""
    accept: float = Rules().accept
    """Seconds a worker behind a hub has to accept a job that it was offered; then the job goes back."""
    start: float = Rules().start
    """Seconds a worker has to start a job after it claimed it; then the job goes back."""
    cancel_grace: float = Rules().cancel_grace
    """Seconds a running handler has to stop after a cancel."""
    retention_completed: float = Retention().completed
    """Seconds for which completed jobs are kept."""
    retention_failed: float = Retention().failed
    """Seconds for which failed jobs are kept."""
    retention_cancelled: float = Retention().cancelled
    """Seconds for which cancelled jobs are kept."""
    unwritten: int = 64 * 1024 * 1024
    """Bytes that may wait to be written, of what jobs came to, and of submits: then workers begin nothing new, and
    submits wait. A number of bytes, or text with a unit: ``"64MiB"``."""

    def rules(self) -> Rules:
        """The numbers of the lifecycle as set."""
        own = {name: getattr(self, name) for name in ("beat", "lease", "accept", "start", "cancel_grace")}
        return Rules(**own, retention=self.retention())

    def retention(self) -> Retention:
        """How long ended jobs are kept, as set."""
        return Retention(
            completed=self.retention_completed,
            failed=self.retention_failed,
            cancelled=self.retention_cancelled,
        )

    @classmethod
    def load(
        cls,
        *,
        code: Mapping[str, Any] | None = None,
        override: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Settings:
        """Read every source. None in ``code`` and ``override`` means unset; :raises ConfigError: naming the source, the
        key and the remedy"""
        found: dict[str, Any] = {}
        for _, values in _layers(code, override, environ, directory):
            found |= values
        settings = cls(**found)
        if settings.lease <= settings.beat:
            raise ConfigError(f"lease ({settings.lease:g} s) must be longer than beat ({settings.beat:g} s)")
        return settings

    @staticmethod
    def sources(
        key: str,
        *,
        code: Mapping[str, Any] | None = None,
        override: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> list[tuple[str, Any]]:
        """Every source of this key, and its value: the one that counts first, then those it wins over."""
        layers = _layers(code, override, environ, directory)
        return [(source, values[key]) for source, values in reversed(list(layers)) if key in values]


def _layers(
    code: Mapping[str, Any] | None,
    override: Mapping[str, Any] | None,
    environ: Mapping[str, str] | None,
    directory: Path | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The values of each source, the weakest first."""
    file = find_file(directory or Path.cwd())
    if file is not None:
        found = _checked(_read(file), str(file))
        if "url" in found:
            found["url"] = _beside(file, found["url"])
        yield str(file), found
    yield from _from_environment(os.environ if environ is None else environ)
    for values, source in ((code, "App(...)"), (override, OVERRIDE)):
        given = {key: value for key, value in (values or {}).items() if value is not None}
        yield source, _checked(given, source)


def find_file(directory: Path) -> Path | None:
    """The nearest ``headrace.toml``, or ``pyproject.toml`` with a ``[tool.headrace]`` table, from here upward."""
    for folder in (directory, *directory.parents):
        own, project = folder / "headrace.toml", folder / "pyproject.toml"
        if own.is_file():
            return own
        if project.is_file() and "headrace" in _parse(project).get("tool", {}):
            return project
    return None


def _beside(file: Path, url: str) -> str:
    """A relative path in a settings file begins where the file is: it is found from every directory below."""
    head, path = "sqlite:///", url.removeprefix("sqlite:///")
    if not url.startswith(head) or not path or path.startswith("/"):
        return url
    return f"{head}{quote(str(file.parent.resolve()))}/{path}"


def _parse(file: Path) -> dict[str, Any]:
    try:
        return _document(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


@lru_cache(8)  # each App reads the same file, which takes longer than all else that it does to open
def _document(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def _read(file: Path) -> dict[str, Any]:
    document = _parse(file)
    table = document["tool"]["headrace"] if file.name == "pyproject.toml" else document
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: [tool.headrace] must be a table")
    return table


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in environ.items():
        # An empty variable is how a shell or a compose file says "not set".
        if not name.startswith(_PREFIX) or not value:
            continue
        key = name.removeprefix(_PREFIX).lower()
        # The environment is shared: a name that resembles no setting may be for another program.
        if key not in Settings.__struct_fields__ and not get_close_matches(
            key, Settings.__struct_fields__, 1, _MIN_NAME_SIMILARITY
        ):
            continue
        text: Any = [part.strip() for part in value.split(",") if part.strip()] if key == "imports" else value
        source = f"the environment variable {name}"
        yield source, _checked({key: text}, source)


def _known(key: str, source: str) -> None:
    if key in Settings.__struct_fields__:
        return
    near = get_close_matches(key, Settings.__struct_fields__, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(Settings.__struct_fields__)}"
    raise ConfigError(f"{source}: unknown setting {key!r}; {hint}")


def _checked(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        _known(key, source)
        try:
            found[key] = _CHECKS.get(key, _duration)(value)
        except ValueError as error:
            raise ConfigError(f"{source}: {key} {error}{'' if key in _HIDDEN else f', not {value!r}'}") from None
    return found


def _duration(value: Any) -> float:
    number = float("nan")
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # A whole number may be greater than any float.
        number = float(value) if abs(value) <= MAX_DURATION_SECONDS else MAX_DURATION_SECONDS * 2
    elif isinstance(value, str):
        with suppress(ValueError):
            number = duration(value)
    if not 0 < number <= MAX_DURATION_SECONDS:
        raise ValueError(
            "must be a duration above 0, at most a century: seconds, or numbers with units"
            f" ({', '.join(UNITS)}), as in 1h30m"
        )
    return number


def _text(fits: Callable[[str], object], message: str, kind: Callable[[str], str] = str) -> Callable[[Any], str]:
    """A check of a text; ``message``: what it must be."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or not fits(value):
            raise ValueError(message)
        return kind(value)

    return check


def _imports(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one for one in value):
        raise ValueError("must be a list of module names")
    return tuple(value)


_SIZES = {"": 1, "B": 1, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}


def _bytes(value: Any) -> int:
    said = re.fullmatch(r"(\d{1,12})\s*([A-Za-z]*)", str(value).strip())
    unit = None if said is None or isinstance(value, bool) else _SIZES.get(said[2].upper())
    if said is None or not unit or not (number := int(said[1]) * unit):
        raise ValueError("must be a number of bytes above 0, or a number with B, KiB, MiB or GiB, as in 64MiB")
    return number


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "unwritten": _bytes,
    "url": _text(lambda text: "://" in text, "must be a URL such as 'sqlite:///headrace.db'"),
    "key": _text(re.compile(r"[!-~]{1,200}").fullmatch, "must be a key as headrace keys create prints it", Secret),
    "secret": _text(
        lambda text: text.isprintable() and _MIN_SECRET_CHARACTERS <= len(text) <= 1000,
        f"must have {_MIN_SECRET_CHARACTERS} characters at least, of chance:"
        " python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        Secret,
    ),
    "app": _text(lambda text: text.partition(":")[0], "must name an App as 'MODULE:APP' or 'MODULE'"),
    "namespace": _text(re.compile(r"[A-Za-z0-9_-]{1,63}").fullmatch, "must be 1 to 63 letters, digits, '_' or '-'"),
    "imports": _imports,
    "log_format": _text(lambda text: text in ("text", "json"), "must be 'text' or 'json'"),
}


def url_source(
    code: Mapping[str, Any], override: Mapping[str, Any], redact: Callable[[str], str]
) -> tuple[str, list[str]]:
    """Where the URL of the store comes from, and which other sources of a URL it overrides, in words."""
    sources = Settings.sources("url", code=code, override=override)
    if not sources:
        return "the default", []
    (won, url), *others = sources
    return won, [f"{source} ({redact(other)})" for source, other in others if other != url]
