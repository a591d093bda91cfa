"""Vocabularies: the words that five published designs have for the statuses of a job, and documents in these words.

Inside headrace there is one language. Shells translate what they show and what they are asked for, and nothing else
does. A status for which a design has no word is shown in headrace's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Any, Literal, NewType, get_args

import msgspec
from msgspec.structs import replace

from headrace.core.status import Reason, Status
from headrace.errors import ConfigError, shown

__all__ = ["EMPROPS", "HEADRACE", "VOCABULARIES", "StatusWord", "Vocabulary", "Words", "vocabulary_of", "worded"]

Words = Literal["headrace", "emprops", "asyncendpoints", "surefire", "jobmaster", "osqueue"]
"""The names of the vocabularies."""

StatusWord = NewType("StatusWord", str)
"""A status as a request names it: a word of the request's vocabulary."""


class Vocabulary:
    """The words of one design, both ways."""

    def __init__(
        self,
        name: Words,
        table: Mapping[Status, str],
        *,
        timed_out: str | None = None,
        lower: bool = False,
        also: Mapping[str, Status] | None = None,
    ) -> None:
        """``table``: the words as the design's page writes them. ``timed_out``: the word for jobs that failed for the
        reason timeout. ``lower``: in JSON the words are in lower case. ``also``: words that are understood, and not
        shown."""
        self.name = name
        self._table, self._lower, self._also = dict(table), lower, dict(also or {})
        self._timed_out = timed_out

    def __repr__(self) -> str:
        return f"<Vocabulary {self.name}>"

    def word(self, status: Status, reason: Reason | None = None) -> str:
        """Return the word for a status, as the design's page writes it."""
        if status is Status.FAILED and reason is Reason.TIMEOUT and self._timed_out is not None:
            return self._timed_out
        return self._table.get(status, status.value)

    def json_word(self, status: Status, reason: Reason | None = None) -> str:
        """Return the word for a status, as JSON has it."""
        word = self.word(status, reason)
        return word.lower() if self._lower else word

    def words(self) -> list[str]:
        """Return every word that is understood, as JSON has it, in the order of the statuses."""
        timed_out = [self.json_word(Status.FAILED, Reason.TIMEOUT)]
        return list(dict.fromkeys([*map(self.json_word, Status), *timed_out, *self._also]))

    def knows(self, word: str) -> bool:
        """Return whether the word is understood; its case does not matter."""
        return word.casefold() in self._meanings

    def statuses(self, said: Iterable[str]) -> tuple[list[Status], Reason | None]:
        """Return all statuses that the words stand for, and the reason to which they are limited, if they are.

        :raises ConfigError: a word is unknown, or the one for time-outs is mixed with words for other statuses than
            failed: no filter finds failed jobs of one reason beside jobs of other statuses
        """
        found, only_timed_out = set[Status](), False
        for word in said:
            if not self.knows(word):
                raise ConfigError(f"{shown(word)} is no status: statuses are {', '.join(self.words())}")
            found |= (meaning := self._meanings[word.casefold()])
            only_timed_out |= not meaning
        if only_timed_out and not found:
            return [Status.FAILED], Reason.TIMEOUT
        if only_timed_out and found != {Status.FAILED}:
            word, failed = (self.json_word(Status.FAILED, reason) for reason in (Reason.TIMEOUT, None))
            raise ConfigError(
                f"{word} is a reason of {failed}, and stands alone or beside {failed}: ask for each apart"
            )
        return [status for status in Status if status in found], None

    def filters(self, said: Sequence[str], reasons: Collection[str] = ()) -> dict[str, Any]:
        """Return the filters by status, and by reason if there are any, that these words and reasons mean.

        :raises ConfigError: as ``statuses``, or no job can match both
        """
        statuses, meant = self.statuses(said)
        if meant is not None and reasons and meant not in reasons:
            raise ConfigError(f"{said[0]} is the reason {meant}: name no other reason")
        found = [meant] if meant is not None else [*reasons]
        return {"status": statuses, "reason": found} if found else {"status": statuses}

    @cached_property
    def _meanings(self) -> dict[str, frozenset[Status]]:
        """The statuses of each word, by the word without its case; of the word for time-outs alone: none."""
        found: dict[str, frozenset[Status]] = {word: frozenset({status}) for word, status in self._also.items()}
        if self._timed_out is not None:
            found[self._timed_out.casefold()] = frozenset()
        for status in Status:
            key = self.word(status).casefold()
            found[key] = found.get(key, frozenset()) | {status}
        return found


HEADRACE = Vocabulary("headrace", {}, also={"in_progress": Status.RUNNING})
"""Our own words; ``in_progress`` was always understood as running."""

EMPROPS = Vocabulary(
    "emprops",
    {
        Status.PENDING: "PENDING",
        Status.QUEUED: "QUEUED",
        Status.ASSIGNED: "ASSIGNED",
        Status.ACCEPTED: "ACCEPTED",
        Status.RUNNING: "IN_PROGRESS",
        # The page lets such a job be FAILED or TIMEOUT, and then QUEUED: of the three only QUEUED says that it will run
        # again, and a client that polls until a job has ended does not stop at it.
        Status.RETRYING: "QUEUED",
        Status.COMPLETED: "COMPLETED",
        Status.FAILED: "FAILED",
        Status.CANCELLED: "CANCELLED",
    },
    timed_out="TIMEOUT",
    lower=True,  # as in the documents of that page
)

_ASYNCENDPOINTS = Vocabulary(
    "asyncendpoints",
    {
        Status.SCHEDULED: "Scheduled",
        Status.QUEUED: "Queued",
        Status.RUNNING: "InProgress",
        Status.RETRYING: "Scheduled",
        Status.COMPLETED: "Completed",
        Status.FAILED: "Failed",
        Status.CANCELLED: "Canceled",
    },
)

_SUREFIRE = Vocabulary(
    "surefire",
    {
        Status.SCHEDULED: "Pending",
        Status.QUEUED: "Pending",
        Status.RUNNING: "Running",
        Status.RETRYING: "Retrying",
        Status.COMPLETED: "Completed",
        Status.FAILED: "Dead letter",
        Status.CANCELLED: "Cancelled",
    },
)

_JOBMASTER = Vocabulary(
    "jobmaster",
    {
        Status.PENDING: "SavePending",
        Status.SCHEDULED: "HeldOnMaster",
        Status.QUEUED: "AssignedToBucket",
        Status.ASSIGNED: "Onboarded",
        Status.ACCEPTED: "Queued",
        Status.RUNNING: "Processing",
        Status.RETRYING: "HeldOnMaster",
        Status.COMPLETED: "Succeeded",
        Status.FAILED: "Failed",
        Status.CANCELLED: "Cancelled",
    },
)

_OSQUEUE = Vocabulary(
    "osqueue",
    {
        Status.QUEUED: "unclaimed",
        Status.RUNNING: "in_progress",
        Status.RETRYING: "unclaimed",
        Status.COMPLETED: "completed",
        Status.FAILED: "exhausted",
    },
)

VOCABULARIES: dict[str, Vocabulary] = {
    one.name: one for one in (HEADRACE, EMPROPS, _ASYNCENDPOINTS, _SUREFIRE, _JOBMASTER, _OSQUEUE)
}


def vocabulary_of(name: Any) -> Vocabulary:
    """Return the vocabulary of this name; :raises ConfigError: there is none"""
    found = VOCABULARIES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(f"words must be one of {', '.join(get_args(Words))}, not {shown(name)}")
    return found


def worded(document: Any, words: Vocabulary) -> Any:
    """Return a document with all statuses in it in these words; where it counts jobs by status, counts of one word are
    added up. Texts stay as they are."""
    if words is HEADRACE:
        return document
    if isinstance(document, msgspec.Struct):
        fields = {name: getattr(document, name) for name in document.__struct_fields__}
        changed = {name: new for name, one in fields.items() if (new := _value(one, fields, words)) is not one}
        return replace(document, **changed) if changed else document
    if isinstance(document, dict):
        if document and all(isinstance(key, Status) for key in document):
            return _counts(document, words)
        return {key: _value(one, document, words) for key, one in document.items()}
    if isinstance(document, tuple | list):
        parts = [worded(one, words) for one in document]
        # The same object where nothing changed: a struct leaves out what is its default.
        return document if all(map(is_, parts, document)) else parts
    return document


def _value(value: Any, beside: Mapping[Any, Any], words: Vocabulary) -> Any:
    """Return a value of a document; ``beside``: all values there, of which the reason may decide about the word."""
    if isinstance(value, Status):
        return words.json_word(value, beside.get("reason"))
    return worded(value, words) if isinstance(value, msgspec.Struct | dict | tuple | list) else value


def _counts(counts: Mapping[Status, Any], words: Vocabulary) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, count in counts.items():
        word = words.json_word(status)
        found[word] = found.get(word, 0) + count
    return found
