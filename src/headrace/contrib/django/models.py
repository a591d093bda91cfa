"""What Django's admin and its permissions know jobs by: a model without a table, since the jobs are in their store."""

from __future__ import annotations

from django.db import models

__all__ = ["Job"]


class _Nothing(models.Manager):
    """Finds nothing: without it ``manage.py dumpdata``, say, would look for a table that is not there."""

    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().none()


class Job(models.Model):
    """The name of jobs in Django's permissions: ``headrace.view_job`` and ``headrace.change_job``."""

    id = models.UUIDField(primary_key=True)

    objects = _Nothing()

    class Meta:
        """No table, and no permission for what cannot be done."""

        managed = False
        default_permissions = ("view", "change")
        base_manager_name = "objects"

    def __str__(self) -> str:
        return str(self.id)
