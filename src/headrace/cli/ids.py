"""Which jobs a command means: whole ids, ends or beginnings of ids, or filters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from headrace.cli.exit_codes import NOT_FOUND
from headrace.cli.output.statuses import statuses_in
from headrace.core import times
from headrace.core.job import Job
from headrace.core.stats.failures import FINGERPRINT_DIGITS
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App

__all__ = [
    "NoSuchJob",
    "check_range",
    "every",
    "given",
    "resolve",
    "resolve_batch",
    "resolve_fingerprint",
    "resolve_gone_worker",
    "resolve_worker",
    "wanted",
]

MIN_PREFIX_CHARACTERS = 4
"""The shortest part of an id worth looking up."""


class _Missing(click.ClickException):
    """Nothing matches what was typed."""

    exit_code = NOT_FOUND
    text = ""

    def __init__(self, typed: str | UUID) -> None:
        super().__init__(self.text.format(typed))


class NoSuchJob(_Missing):
    """No job has an id that begins or ends like this."""

    text = "no job's id is, begins or ends with {!r}: list what is there with headrace jobs"


class NoSuchBatch(_Missing):
    """Neither a batch nor a job matches."""

    text = (
        "no job's id is, begins or ends with {!r}, and a batch is known by its whole id: list batches with"
        " headrace batches"
    )


class NoSuchWorker(_Missing):
    """No worker has an id that begins or ends like this."""

    text = "no worker's name is {!r}, nor does its id begin or end so: list them with headrace workers"


class NoSuchGoneWorker(_Missing):
    """No worker that is gone has an id that begins or ends like this."""

    text = "no gone worker's name is {!r}, nor does its id begin or end so: list them with headrace workers gone"


class NoSuchFailure(_Missing):
    """No failure has a fingerprint that begins like this."""

    text = "no fingerprint begins with {!r}: list them with headrace failures"


class NotInBatch(_Missing):
    """The job is in no batch."""

    text = "job {} is in no batch"


async def resolve(app: App, text: str) -> UUID:
    """Return the id that is meant.

    :raises NoSuchJob: nothing fits.
    :raises click.UsageError: it is no id, or fits several jobs.
    """
    try:
        return UUID(text)
    except ValueError:
        pass
    part = text.strip().lower()
    if len(part) < MIN_PREFIX_CHARACTERS or not re.fullmatch(r"[0-9a-f-]+", part):
        raise click.UsageError(
            f"{text!r} is not a job id: give it whole, or at least {MIN_PREFIX_CHARACTERS} of its first or last digits"
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
    """Yield all jobs that match, page by page."""
    cursor: str | None = None
    while True:
        page = await app.jobs.list(**filters, limit=200, cursor=cursor)
        for job in page.items:
            yield job
        cursor = page.cursor
        if cursor is None:
            return


async def resolve_batch(app: App, text: str) -> UUID:
    """Return the batch that is meant: by its own id, or by that of one of its jobs, which may be cut.

    :raises NoSuchBatch, NotInBatch: nothing fits, or a job that is in no batch.
    :raises click.UsageError: it is no id, or fits several jobs.
    """
    try:
        id = await resolve(app, text)
    except NoSuchJob:
        raise NoSuchBatch(text) from None
    [job] = await app.jobs.get_many([id])
    if job is None:
        return id  # the caller that reads the batch reports whether there is one
    if job.batch is None:
        raise NotInBatch(id)
    return job.batch


async def resolve_worker(app: App, text: str) -> UUID:
    """Return the worker that is meant, by its id, by the first or last digits of it, or by its name.

    Of several registrations under one name those that are alive are meant.

    :raises NoSuchWorker: nothing fits.
    :raises click.UsageError: it fits several.
    """
    part = text.strip().lower()
    rows = await app.workers.list()
    called = [row for row in rows if row.info.name == text.strip()]
    found = [row.info.id for row in called if row.alive] or [row.info.id for row in called]
    found = found or [
        row.info.id for row in rows if part and (str(row.info.id).startswith(part) or str(row.info.id).endswith(part))
    ]
    if not found:
        raise NoSuchWorker(text)
    if len(found) > 1:
        raise click.UsageError(f"{text!r} fits several workers: {', '.join(map(str, found[:5]))}")
    return found[0]


async def resolve_gone_worker(app: App, text: str) -> UUID:
    """Return the worker that is meant, of those that are gone: by its id, or, among the last to go, by digits or name.

    :raises NoSuchGoneWorker: nothing fits.
    :raises click.UsageError: it fits several.
    """
    part = text.strip().lower()
    with suppress(ValueError):
        return UUID(part)
    infos = [one.row.info for one in (await app.workers.gone(limit=1000)).items]
    called = [info.id for info in infos if info.name == text.strip()][:1]  # the last of that name
    found = called or [
        info.id for info in infos if part and (str(info.id).startswith(part) or str(info.id).endswith(part))
    ]
    if not found:
        raise NoSuchGoneWorker(text)
    if len(found) > 1:
        raise click.UsageError(f"{text!r} fits several workers: {', '.join(map(str, found[:5]))}")
    return found[0]


async def resolve_fingerprint(app: App, text: str) -> str:
    """Return the fingerprint that is meant, by its first digits.

    :raises NoSuchFailure: nothing fits.
    :raises click.UsageError: it is none, or fits several.
    """
    part = text.strip().lower().removesuffix("…")
    if len(part) >= FINGERPRINT_DIGITS:
        return part
    if len(part) < MIN_PREFIX_CHARACTERS or not re.fullmatch(r"[0-9a-f]+", part):
        raise click.UsageError(
            f"{text!r} is not a fingerprint: give at least {MIN_PREFIX_CHARACTERS} of its first digits"
        )
    groups = await app.jobs.failures(limit=1000, status=list(Status))
    found = [group.fingerprint for group in groups if group.fingerprint and group.fingerprint.startswith(part)]
    if not found:
        raise NoSuchFailure(text)
    if len(found) > 1:
        raise click.UsageError(f"{text!r} fits several fingerprints: {', '.join(found[:5])}")
    return found[0]


async def wanted(app: App, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters with whole ids in them.

    :raises click.UsageError: ``root`` is a job that has a parent itself
    """
    found = dict(filters)
    for name in ("parent", "root", "rerun_of"):
        if name in found:
            found[name] = await resolve(app, found[name])
    if "worker" in found:
        found["worker"] = [await resolve_worker(app, text) for text in found["worker"]]
    if "fingerprint" in found:
        found["fingerprint"] = [await resolve_fingerprint(app, text) for text in found["fingerprint"]]
    now = app.host.clock.now()
    check_range(now, found.get("created_after"), found.get("created_before"), "--since", "--until")
    ends = found.get("finished_after"), found.get("finished_before")
    check_range(now, *ends, "--finished-since", "--finished-until")
    for name in ("created_after", "created_before", "finished_after", "finished_before"):
        if name in found:
            found[name] = moment_of(found[name], now)
    if "batch" in found:
        found["batch"] = await resolve_batch(app, found["batch"])
    if "root" in found:
        [job] = await app.jobs.get_many([found["root"]])
        if job is not None and job.root is not None:
            # Its root in its place would cancel more than was meant.
            raise click.UsageError(
                f"job {job.id} has a parent, so nothing has it as root: say --root {job.root} for its whole family, "
                f"or --parent {job.id} for its children"
            )
    return found


def moment_of(when: datetime | float, now: datetime) -> datetime:
    """Return a moment that is given as such, or as how long ago it was."""
    return when if isinstance(when, datetime) else now - timedelta(seconds=when)


def check_range(
    now: datetime, since: datetime | float | None, until: datetime | float | None, first: str, second: str
) -> None:
    """Refuse a range of time with nothing in it, by the names of its flags; :raises click.UsageError:"""
    if since is None or until is None:
        return
    begin, end = moment_of(since, now), moment_of(until, now)
    if end <= begin:
        between = f"nothing is between {times.moment(begin, None)} and {times.moment(end, None)}"
        raise click.UsageError(f"{second} must be later than {first}: {between}")


def given(**chosen: Any) -> dict[str, Any]:
    """Return the filters that were given, as App.jobs takes them once ``wanted`` has seen them.

    :raises click.UsageError: words for statuses exclude each other
    """
    said = {name: value for name, value in chosen.items() if value is not None and value is not False and value != ()}
    return statuses_in(said)
