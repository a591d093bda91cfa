"""Drafts of what is submitted: most submits of a task have options that an earlier one had, too."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from headrace.draft import Draft
from headrace.hub.wording import Submission

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.task import Task

__all__ = ["Drafts"]

_MOST = 500
"""Tasks with options that are remembered."""


class Drafts:
    """Makes drafts by the names of tasks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[Hashable, Task[Any, Any]] = {}

    async def draft(self, said: Submission) -> tuple[Draft[Any], tuple[str, ...]]:
        """The draft, and what its submitter should know; raises like ``App.draft``."""
        task = self._app.by_name.get(said.task)
        if task is None:
            return await self._app.draft_with_warnings(said.task, said.payload, **said.options)
        key = said.options.pop("request_key", None)  # which no two submits share
        draft = self._with_options(task, said.options).draft_bound(said.payload)
        return (draft if key is None else draft.with_options(request_key=key)), ()

    def _with_options(self, task: Task[Any, Any], options: dict[str, Any]) -> Task[Any, Any]:
        if not options:
            return task
        like = (task.name, *options.items())
        try:
            known = self._known.get(like)
        except TypeError:  # one of them is a document
            return task.with_options(options)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[like] = task.with_options(options)
        return known
