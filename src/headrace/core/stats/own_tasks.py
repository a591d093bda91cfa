"""Tasks that are headrace's own, such as the delivery of webhooks: figures about jobs leave them out, or show them
apart."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["OWN_PREFIX", "is_own", "runs_only_own"]

OWN_PREFIX = "headrace."
"""How the names of headrace's own tasks begin; a user's task has no such name."""


def is_own(task: str) -> bool:
    """Return whether a task is headrace's own, by its name alone: its jobs may be in any queue."""
    return task.startswith(OWN_PREFIX)


def runs_only_own(tasks: Iterable[str]) -> bool:
    """Return whether a worker with these tasks runs nothing but headrace's own; one without tasks does not."""
    named = tuple(tasks)
    return bool(named) and all(map(is_own, named))
