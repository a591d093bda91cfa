"""headrace as an application of a Django project."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["HeadraceConfig"]


class HeadraceConfig(AppConfig):
    """The application; it has no tables, as the jobs are in a store of their own."""

    name = "headrace.contrib.django"
    label = "headrace"
    verbose_name = "Background jobs"
