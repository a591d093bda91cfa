"""Statuses in the words that the command line asks for: for people as a design's page writes them, else as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from headrace.cli.options import vocabulary
from headrace.core.attempt import History
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.errors import ConfigError

__all__ = ["counts_of", "record_of", "statuses_in", "word_for", "word_of"]


def word_of(job: Job) -> str:
    """Return the status of a job, for people."""
    return vocabulary().word(job.status, job.reason)


def word_for(status: Status) -> str:
    """Return a status, for people."""
    return vocabulary().word(status)


def record_of(job: Job, history: History | None = None) -> dict[str, Any]:
    """Return the whole record of a job, for programs."""
    return job.to_dict(history) | {"status": vocabulary().json_word(job.status, job.reason)}


def counts_of(counts: Mapping[Status, int]) -> list[tuple[str, Status, int]]:
    """Return how many jobs there are of each word, in the order of the statuses; with the first status of the word."""
    found: dict[str, tuple[Status, int]] = {}
    for status in Status:
        if count := counts.get(status, 0):
            word = word_for(status)
            first, before = found.get(word, (status, 0))
            found[word] = first, before + count
    return [(word, status, count) for word, (status, count) in found.items()]


def statuses_in(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return filters with the statuses, and the reason, for which their words stand; :raises click.UsageError:"""
    if not filters.get("status"):
        return dict(filters)
    try:
        return {**filters, **vocabulary().filters(filters["status"], filters.get("reason", ()))}
    except ConfigError as error:
        raise click.UsageError(f"--status: {error}") from None
