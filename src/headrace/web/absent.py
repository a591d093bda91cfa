"""Jobs that are not there, and ids that are none: answered alike, whether there is none or it is somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from headrace.core.bounds import shown
from headrace.web.problems import Problem

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["absent", "id_of"]


def id_of(text: str) -> UUID:
    """The id in a path; :raises Problem: 404, no job can have it"""
    try:
        return UUID(text)
    except ValueError:
        raise Problem(404, "not-found", "There is no such job", f"{shown(text)} is no id: ids are UUIDs") from None


def absent(id: UUID, app: App) -> Problem:
    """What is said of a job that is not there, by the age of its id alone: so nobody learns whether it is another's."""
    if app.may_be_pruned(id):
        return Problem(410, "gone", "The job is gone", f"no job {id}: ended jobs are not kept for as long as that")
    return Problem(404, "not-found", "There is no such job", f"no job {id}")
