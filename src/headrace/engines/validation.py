"""What no engine stores, whatever its database accepts: text with a NUL or with a lone surrogate.

PostgreSQL has no NUL in text and SQLite's functions stop at one; a lone surrogate has no UTF-8 at all. What happens to
a job must not depend on its store, so all of them refuse alike. Within a JSON document a NUL is written as an escape:
there all of them keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.core.change import Change
from headrace.core.entry import Append
from headrace.core.job import Job, Spec
from headrace.core.validation import is_text
from headrace.errors import Unstorable

__all__ = ["UNENCODABLE", "has_halves", "refuse_changes", "refuse_entries", "refuse_jobs", "refuse_text"]

_encode = msgspec.json.Encoder().encode

UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError, msgspec.EncodeError)
"""The errors of an encoder: the value is no plain one, and nothing was sent."""


def has_halves(*texts: str | None) -> bool:
    """Return whether one of these has a lone surrogate: no store has it, or can be queried for it."""
    return not is_text("".join(text for text in texts if text is not None).replace("\0", ""))


def refuse_text(*texts: str | None) -> None:
    """:raises Unstorable: one of these cannot be stored"""
    try:
        joined = "".join(filter(None, texts))
    except TypeError as error:
        raise Unstorable(f"it cannot be stored: {error}") from None
    if not is_text(joined):
        raise Unstorable("text with a NUL or with half of a surrogate pair cannot be stored")


def refuse_jobs(jobs: Sequence[Job], *, documents: bool = False) -> None:
    """``documents``: those as well; a writer of JSON finds out by itself.

    :raises Unstorable: one of these new jobs cannot be stored
    """
    # All texts at once, and without a word of which it was: the batcher finds the guilty job, and this runs for all.
    texts: list[str | None] = []
    seen: Spec | None = None  # jobs of one call share theirs
    for job in jobs:
        spec = job.spec
        if "\0" in job.payload_text:
            raise Unstorable("a payload with a NUL cannot be stored: in JSON it is written as \\u0000")
        if spec is seen:
            continue
        seen = spec
        texts += (spec.task, spec.queue, spec.customer, spec.dedup, spec.request_key, spec.concurrency_key)
        texts += (spec.schedule, *spec.tags)
        if documents:
            _refuse_document(spec)
    refuse_text(*texts)
    if documents:
        refuse_text(*(job.payload_text for job in jobs))


def refuse_changes(changes: Iterable[Change]) -> None:
    """:raises Unstorable: what one of these writes cannot be stored"""
    for change in changes:
        refuse_text(change.job.result_text, change.job.moved_to)
        _refuse_document((change.job.error, change.job.progress, change.attempt, change.event))


def refuse_entries(appends: Iterable[Append]) -> None:
    """:raises Unstorable: one of these entries cannot be stored"""
    for append in appends:
        for entry in append.entries:
            refuse_text(entry.name, entry.data)


def _refuse_document(document: object) -> None:
    try:
        _encode(document)
    except UnicodeEncodeError:
        raise Unstorable("text with half of a surrogate pair cannot be stored") from None
    except UNENCODABLE as error:
        raise Unstorable(f"it cannot be stored: {error}") from None
