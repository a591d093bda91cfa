"""Django: the App of a project, ``manage.py headrace``, jobs within transactions, and a backend for ``django.tasks``.

INSTALLED_APPS = [..., "headrace.contrib.django"]
HEADRACE = {"DATABASE": "default"}  # or "URL", or "APP"
TASKS = {"default": {"BACKEND": "headrace.contrib.django.HeadraceBackend"}}  # Django 6

Begin with ``project`` (the App) and ``transactions``. May import ``endpoints``, ``http``, ``app`` and below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import MissingExtra

try:
    import django as _django
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.contrib.django", "django", "django") from error

from headrace.contrib.django.project import project_app
from headrace.contrib.django.transactions import submit

if TYPE_CHECKING:
    from headrace.contrib.django.backend import HeadraceBackend

__all__ = ["HeadraceBackend", "project_app", "submit"]


def __getattr__(name: str) -> Any:
    if name == "HeadraceBackend":  # which needs Django 6
        from headrace.contrib.django.backend import HeadraceBackend

        return HeadraceBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


assert _django
