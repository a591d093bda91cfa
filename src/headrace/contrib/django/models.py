"""The model of jobs for Django's admin and permissions; it has no table, since the jobs are in their store."""

from __future__ import annotations

from django.db import models

__all__ = ["Job"]


class _Nothing(models.Manager):
    """Finds nothing: without it ``manage.py dumpdata``, say, would query a table that does not exist."""

    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().none()


class Job(models.Model):
    """The name of jobs in Django's permissions: ``headrace.view_job`` and ``headrace.change_job``."""

    id = models.UUIDField(primary_key=True)

    objects = _Nothing()

    class Meta:
        """No table, and no permission for what is impossible."""

        managed = False
        default_permissions = ("view", "change")
        base_manager_name = "objects"

    def __str__(self) -> str:
        return str(self.id)
