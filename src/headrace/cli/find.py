"""From ``MODULE[:APP]`` to an App: the current directory is importable, a module's single App needs no name."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
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
        raise ConfigError(f"importing {name!r} failed: it needs {missing!r}, which is not installed") from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"importing {name!r} failed: {type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        ) from error


def _not_the_file(name: str) -> str:
    return f"name the module, not the file: {name.removesuffix('.py').strip('./').replace('/', '.')}"


def find_app(where: str) -> App:
    """The App that ``MODULE:APP`` or ``MODULE`` names.

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
    """The Apps among a module's globals, by name."""
    from headrace.app import App

    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _listed(module: ModuleType, apps: dict[str, App]) -> str:
    name = module.__name__
    if not apps:
        return f"module {name} holds no App: make one with app = App(...)"
    choices = ", ".join(f"{name}:{app}" for app in sorted(apps))
    return f"module {name} holds {choices}" if len(apps) == 1 else f"module {name} holds several Apps: say {choices}"
