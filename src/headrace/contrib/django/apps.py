"""headrace as an application of a Django project."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.core.signals import request_started

__all__ = ["HeadraceConfig"]


class HeadraceConfig(AppConfig):
    """The application; it has no tables, as the jobs are in a store of their own."""

    name = "headrace.contrib.django"
    label = "headrace"
    verbose_name = "Background jobs"

    def ready(self) -> None:
        """Have Django check the views that are jobs."""
        from headrace.contrib.django.checks import check_first_request, check_views

        checks.register(check_views, checks.Tags.urls)
        request_started.connect(check_first_request)
