"""From ``MODULE[:APP]`` to an App: the current directory is importable, a module's single App needs no name."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from headrace.config import find_file
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["find_app", "import_module", "make_importable"]


def make_importable() -> None:
    """Let modules of the current directory be imported, also by the children of this process."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    # A settings file further up may name an App that lies beside it.
    file = find_file(Path(here))
    if file is not None and str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))


def import_module(name: str) -> ModuleType:
    """Import a module by name; every failure is a ConfigError that says what is wrong with it."""
    make_importable()
    if "/" in name:
        raise ConfigError(f"no module named {name!r}: {_not_the_file(name)}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            here = f"is it in this directory ({os.getcwd()}) or installed?"
            hint = _not_the_file(name) if name.endswith(".py") else here
            raise ConfigError(f"no module named {missing!r}: {hint}") from error
        raise _failed(name, f"it needs {missing!r}, which is not installed", error) from error
    except Exception as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _failed(name, f"{type(error).__name__}: {said}", error) from error


_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_FOREIGN = (_OURS, "<frozen importlib", str(importlib.__file__))


def _failed(name: str, why: str, error: Exception) -> ConfigError:
    """Return the error of a failed import, with the lines of the user's code that led there: neither ours nor those of
    the import machinery say anything about it."""
    _without_machinery(error)
    frames = traceback.extract_tb(error.__traceback__)
    lines = traceback.format_list(frames)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        lines += traceback.format_exception_only(error)[:-1]
        place = f" ({error.filename}:{error.lineno})"
    failed = ConfigError(f"importing {name!r} failed: {why}{place}")
    if lines:
        failed.add_note("".join(lines).rstrip())
    return failed


def _without_machinery(first: BaseException) -> None:
    """Leave the user's own frames in the traceback of an error, and of those it came from."""
    error: BaseException | None = first
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        kept = [one for one in _chain(error.__traceback__) if not one.tb_frame.f_code.co_filename.startswith(_FOREIGN)]
        for one, following in zip_longest(kept, kept[1:]):
            one.tb_next = following
        error.__traceback__ = kept[0] if kept else None
        error = error.__cause__ or error.__context__


def _chain(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _not_the_file(name: str) -> str:
    return f"name the module, not the file: {name.removesuffix('.py').strip('./').replace('/', '.')}"


def find_app(where: str) -> App:
    """Return the App that ``MODULE:APP`` or ``MODULE`` names.

    :raises ConfigError: it cannot be imported, is not there, is no App, or is one of several.
    """
    from headrace.app import App

    name, _, attribute = where.partition(":")
    if not name:
        raise ConfigError(f"{where!r} names no App: say MODULE:APP, as in quick:app")
    module = import_module(name)
    if attribute:
        found: object = module
        for part in attribute.split("."):
            found = getattr(found, part, None)
        if isinstance(found, App):
            return found
        there = "is no App" if found is not None else "does not exist"
        raise ConfigError(f"{where} {there}; {_listed(module, apps_of(module))}")
    apps = apps_of(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    raise ConfigError(_listed(module, apps))


def apps_of(module: ModuleType) -> dict[str, App]:
    """Return the Apps among a module's globals, by name."""
    from headrace.app import App

    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _listed(module: ModuleType, apps: dict[str, App]) -> str:
    name = module.__name__
    if not apps:
        return f"module {name} holds no App: make one with app = App(...)"
    choices = ", ".join(f"{name}:{app}" for app in sorted(apps))
    return f"module {name} holds {choices}" if len(apps) == 1 else f"module {name} holds several Apps: say {choices}"
