"""Which jobs a command means: whole ids, ends or beginnings of ids, or filters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from headrace.cli.failures import NOT_FOUND
from headrace.core.job import Job

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["NoSuchJob", "every", "resolve"]

LEAST = 4
"""The shortest part of an id worth looking up."""


class NoSuchJob(click.ClickException):
    """No job's id begins or ends so."""

    exit_code = NOT_FOUND

    def __init__(self, text: str) -> None:
        super().__init__(f"no job's id is, begins or ends with {text!r}: list what is there with headrace jobs")


async def resolve(app: App, text: str) -> UUID:
    """The id that is meant.

    :raises NoSuchJob: nothing fits.
    :raises click.UsageError: it is no id, or fits several jobs.
    """
    try:
        return UUID(text)
    except ValueError:
        pass
    part = text.strip().lower()
    if len(part) < LEAST or not re.fullmatch(r"[0-9a-f-]+", part):
        raise click.UsageError(
            f"{text!r} is not a job id: give it whole, or at least {LEAST} of its first or last digits"
        )
    found: list[Job] = []
    async for job in every(app, text=part):
        if str(job.id).startswith(part) or str(job.id).endswith(part):
            found.append(job)
        if len(found) > 5:
            break
    if not found:
        raise NoSuchJob(text)
    if len(found) > 1:
        listed = ", ".join(str(job.id) for job in found[:5])
        raise click.UsageError(f"{text!r} fits several jobs: {listed}{' …' if len(found) > 5 else ''}")
    return found[0].id


async def every(app: App, **filters: Any) -> AsyncIterator[Job]:
    """All jobs that match, page by page."""
    cursor: str | None = None
    while True:
        page = await app.jobs(**filters, limit=200, cursor=cursor)
        for job in page.items:
            yield job
        cursor = page.cursor
        if cursor is None:
            return


def given(status: Sequence[str], **others: str | None) -> dict[str, Any]:
    """The filters that were given, as App.jobs takes them."""
    chosen: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    return chosen | {"status": list(status)} if status else chosen
