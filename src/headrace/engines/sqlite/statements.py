"""Writes within a transaction of the user's: the same statements, one by one, on a connection of theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.change import Applied, Change, Key, Note, Verdict, WasStale, judge
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.engine import InsertAnswer, Refused
from headrace.engine.statements import Statement, Statements
from headrace.engines.record import Micros, Moments, encode, is_new, key_of, labels_of, place_of, sort_out
from headrace.engines.record import too_many as too_many_profiles
from headrace.engines.refusing import refuse_jobs
from headrace.engines.sqlite.connection import ask, setup
from headrace.engines.sqlite.lines import interning
from headrace.engines.sqlite.relations import Relations, follow
from headrace.engines.sqlite.rows import Record, job_of, row_of_change, row_of_new

__all__ = ["applying", "inserting"]

_known = msgspec.json.Decoder(list[tuple[int, str, Record]]).decode
_seen = msgspec.json.Decoder(list[tuple[int | None, Record | None, Record | None]]).decode


@cache
def _unfolded(verb: str, view: str, trigger: str) -> tuple[str, ...]:
    """The writes of a verb's trigger as statements of their own: nothing is created on a connection of the user's,
    where its name would hide theirs. A column of the view is read from the parameter, an array in its order."""
    text = re.sub(r"--[^\n]*", "", setup(verb))
    columns = re.findall(r"NULL AS (\w+)", re.findall(rf"VIEW {view} AS(.*?);", text, re.DOTALL)[0])
    places = {name: place for place, name in enumerate(name for name in columns if name != "place")}
    body = re.findall(rf"TRIGGER {trigger} .*? BEGIN(.*?)\nEND;", text, re.DOTALL)[0]
    writes = [part.strip() for part in body.split(";") if "missed" not in part and "raise(" not in part]
    return tuple(re.sub(r"new\.(\w+)", lambda new: f"($1 ->> {places[new[1]]})", part) for part in writes if part)


@cache
def _reading(verb: str) -> str:
    """A question that uses the view ``record``, with the view in it."""
    view = re.sub(r"--[^\n]*", "", setup("record")).partition("VIEW record AS")[2].strip().rstrip(";")
    return f"WITH record AS ({view})\n" + ask(verb).replace("?1", "$1")


def inserting(jobs: Sequence[Job]) -> Statements[list[InsertAnswer]]:
    """Store new jobs, in the order given."""
    refuse_jobs(jobs)
    places = [place_of(job) for job in jobs]
    # In this very transaction, not before it: it may hold the lock of the file, and then nobody else can write.
    lines = yield from interning(dict.fromkeys(places))
    taken = [(job, line) for job, place in zip(jobs, places, strict=True) if (line := lines[place]) is not None]
    stored = iter((yield from _insert([job for job, _ in taken], [line for _, line in taken])))
    return [Refused(too_many_profiles()) if lines[place] is None else next(stored) for place in places]


def _insert(jobs: list[Job], lines: list[int]) -> Statements[list[InsertAnswer]]:
    ids, keys, here, moments = dict[UUID, Job](), dict[str, UUID](), list[UUID](), Moments()
    names = encode([(job.id, key_of(job)) for job in jobs])
    for _, by, record in _known((yield Statement(_reading("known"), names))):
        job = ids[record.id] = job_of(record, moments)
        if by == "id":
            here.append(job.id)
        elif (key := key_of(job)) is not None:
            keys[key] = job.id
    relations = Relations(jobs)
    yield from relations.looking()
    fresh, told = sort_out(jobs, here, keys, relations.refused)
    at = Micros()
    rows = [row_of_new(jobs[index], lines[index], at) for index in fresh]
    labels = [(place, label) for place, index in enumerate(fresh) for label in labels_of(jobs[index])]
    before = int((yield Statement("SELECT last_seq FROM books", "")))
    document = encode((rows, labels, len(rows), 0))
    for statement in _unfolded("insert", "arrival", "arriving"):
        yield Statement(statement, document)
    stored = [replace(jobs[index], seq=seq) for seq, index in enumerate(fresh, before + 1)]
    for job in stored:
        if not is_new(job):
            yield from _write(Change(verb=Verb.SUBMIT, rev=1, job=job))
    yield from relations.storing(stored, None)
    return relations.answers(told, ids | {job.id: job for job in stored})


def applying(change: Change) -> Statements[Verdict]:
    """Apply one change if its rev and owner still hold."""
    tied = yield Statement("SELECT tied FROM jobs WHERE seq = $1 ->> 0 AND rev = $1 ->> 1", _row(change))
    if tied:
        yield from _write(change)
        yield from follow([change])
        if change.inserts:
            yield from inserting(change.inserts)
        return Applied(change.job, tied == "1" and Note.ENDED in change.notes)
    wanted = encode([(change.job.id, key_of(change.job) if change.key is Key.TAKE else None)])
    (last, record, holder), moments = _seen((yield Statement(_reading("second_look"), wanted)))[0], Moments()
    job = None if record is None else job_of(record, moments)
    verdict = judge(change, last, job, None if holder is None else job_of(holder, moments))
    if verdict is None and job is not None:  # the job did not know its order number
        verdict = yield from applying(replace(change, job=replace(change.job, seq=job.seq)))
    return verdict or WasStale(None)


def _row(change: Change) -> str:
    return encode(row_of_change(change, Micros()))


def _write(change: Change) -> Statements[None]:
    document = _row(change)
    for statement in _unfolded("apply", "turned", "turning_one"):
        yield Statement(statement, document)
