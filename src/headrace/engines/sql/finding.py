"""Finding jobs by a filter, newest first, without looking at all of them; the same in every SQL engine.

What is asked for leads to candidates. Few of them (``FEW``) are gathered and sorted. If there are more, the newest jobs
are looked through first (``PEEK``): what matches often is found there. Else candidates are gone through in their order:

- The index of a label, a reason or a fingerprint has them in the order of their numbers.
- For tasks, queues and ranges of time there are lists of blocks. A block is a range of order numbers. An entry says
  that some of its jobs stand in a line, or were created in a span of time. An insert adds few, not one for each job.

Jobs that were stored by a version without these lists are marked (``created_at`` is null) and looked at every time.

One question takes several statements. All of them see the store as of one moment: else a job that moves between two of
them would be found twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.core.fingerprint import FailureGroup, group_of, grouped
from headrace.core.job import Job
from headrace.core.query import Filter, Page, as_seen, cursor_of, matches
from headrace.core.status import DEFERRED, ENDED, Status
from headrace.engines.sql.record import State, labels_asked, micros, moment, stages_of

__all__ = ["BUCKET", "FEW", "LOOK", "Asked", "Asking", "Dialect", "Finder", "Part"]

T = TypeVar("T")

FEW = 2000
"""So many candidates are gathered and sorted."""
PEEK = 3000
"""So many of the newest jobs are looked through before an index is gone through."""
LOOK = 5000
"""For a page by text, so many candidates are looked at; the page may be short, and the next one goes on from there."""
NEWEST = 2**62
"""Behind every order number."""
BUCKET = 29
"""The span of time of a block's entry, as a power of two of microseconds: nine minutes."""

_ROUNDS = (4, 12, 40, 128)
"""How many blocks are gone through at a time."""
_APART = 3
"""More ranges than these are gone through together."""

Asked = tuple[str, list[Any]]
"""SQL with a question mark for each of these values."""
Asking = Generator[Asked, list[Any], T]
"""A question as a value: yields statements, is sent the rows that each answers, and returns what was asked for."""


class Part(NamedTuple):
    """Candidates: rows of a table ``x`` that has order numbers. Those of one list of parts have no job in common."""

    table: str
    where: str
    values: Sequence[Any] = ()
    ordered: bool = False
    """Whether an index has them in the order of their numbers."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What is said in another way in each engine. In SQL, ``j`` is a job and ``b`` its body."""

    prefix: str
    """Before the name of each table."""
    line_shift: int
    """The size of a block in the list of lines, as a power of two."""
    time_shift: int
    state: str
    """A field of the state as text; ``{}`` is its number."""
    created: str
    """When the job was created."""
    customer: str
    """In the spec."""
    rerun_of: str
    unlisted: Part
    """The jobs that are in no list."""
    error_type: str
    page: str
    """The statement for the records of the jobs that ``{found}`` selects, newest first."""
    body: str
    """What joins the body."""
    join: str
    """What joins candidates with jobs, in this order."""
    number: str
    """What makes a number of a field of the state."""
    all_of_them: str
    """After a selection that is not to be merged with what is around it."""
    task: str
    error: str
    """What joins the error."""
    has_error: str
    by_status: frozenset[int]
    """The stages that have an index by status in the order of numbers."""
    by_number: str
    """The table of jobs, gone through by their numbers."""
    blocks_of_lines: str
    """The statement for the blocks of lines, the last ones first: which lines, below which block, how many."""
    ranges: str
    """The tables for jobs in ranges of order numbers, which are one value, a list of pairs."""


class Finder:
    """Answers questions about the jobs of a store; each engine has its own."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    async def answer(self, begin: Callable[[], Asking[T]]) -> T:
        """Run all statements of a question as of one moment; to try once more, it is begun anew."""
        raise NotImplementedError

    def read(self, rows: Sequence[Any]) -> list[Job]:
        """The jobs in the answer of ``Dialect.page``."""
        raise NotImplementedError

    def label(self, text: str) -> str:
        """A label as it is stored."""
        raise NotImplementedError

    def text(self, text: str) -> Asked:
        """Whether a text, in lower case, may be found in a job."""
        raise NotImplementedError

    def is_storable(self, filter: Filter) -> bool:
        """Whether the store can contain the texts of a filter."""
        raise NotImplementedError

    async def find(self, filter: Filter, now: datetime, limit: int, cursor: str | None) -> Page[Job]:
        """A page of the jobs that match."""
        below = cursor_of(cursor)
        place = NEWEST if below is None else below
        found, floor = await self.answer(lambda: self._page(filter, now, place, limit + 1))
        items = tuple(as_seen(job, now) for job in found[:limit])
        if len(found) > limit:
            return Page(items, str(items[-1].seq) if items else cursor)
        return Page(items, None if floor is None else str(floor))

    async def count(self, filter: Filter, now: datetime) -> int:
        """How many jobs match."""
        return await self.answer(lambda: self._count(filter, now))

    async def failures(self, filter: Filter, now: datetime, limit: int) -> list[FailureGroup]:
        """The groups of those that match and have an error."""
        return await self.answer(lambda: self._failures(filter, now, limit))

    def _page(self, filter: Filter, now: datetime, place: int, most: int) -> Asking[tuple[list[Job], int | None]]:
        search = yield from self._search(filter, now)
        return ([], None) if search is None else (yield from search.page(place, most))

    def _count(self, filter: Filter, now: datetime) -> Asking[int]:
        search = yield from self._search(filter, now)
        return 0 if search is None else (yield from search.count())

    def _failures(self, filter: Filter, now: datetime, limit: int) -> Asking[list[FailureGroup]]:
        search = yield from self._search(filter, now)
        return [] if search is None else (yield from search.failures(limit))

    def _search(self, filter: Filter, now: datetime) -> Asking[_Search | None]:
        """The search for a filter; None: nothing can match."""
        if not self.is_storable(filter):
            return None
        if not (filter.task or filter.queue):
            return _Search(self, filter, now, None)
        terms = [f"{name} IN ({_marks(of)})" for name, of in (("p.task", filter.task), ("l.queue", filter.queue)) if of]
        prefix = self.dialect.prefix
        asked = (
            f"SELECT l.id FROM {prefix}lines l JOIN {prefix}profiles p ON p.id = l.profile WHERE {' AND '.join(terms)}"
        )
        rows = yield asked, [*sorted(filter.task), *sorted(filter.queue)]
        return _Search(self, filter, now, [row[0] for row in rows]) if rows else None


class _Search:
    """One filter, as of one moment."""

    def __init__(self, finder: Finder, filter: Filter, now: datetime, lines: list[int] | None) -> None:
        """``lines``: those of the tasks and queues that are asked for; None: any."""
        self._finder, self._filter, self._now, self._lines = finder, filter, now, lines
        self._sql = finder.dialect
        self._jobs = f"{self._sql.prefix}jobs"
        self._labels = f"{self._sql.prefix}labels"
        # A deferred job that is due is seen as queued, but stored as deferred.
        self._among = filter.status | (DEFERRED if Status.QUEUED in filter.status else frozenset())
        self._terms: list[str] = []
        self._values: list[Any] = []
        self._ask_for_state()
        self._ask_for_the_rest()

    # -- what must be true of a job

    def _add(self, term: str, *values: Any) -> None:
        self._terms.append(term)
        self._values += values

    def _field(self, name: str, table: str = "j") -> str:
        """A field of the state."""
        field = self._sql.state.format(State.__struct_fields__.index(name))
        return field if table == "j" else field.replace("j.", f"{table}.")

    def _ask_for_state(self) -> None:
        filter = self._filter
        if filter.status:
            self._add(f"j.stage IN ({', '.join(map(str, stages_of(self._among)))})")
            seen = "CASE WHEN j.stage = 1 AND j.available_at <= ? THEN 'queued' ELSE j.status END"
            self._add(f"{seen} IN ({_marks(filter.status)})", micros(self._now), *sorted(filter.status))
        if self._lines is not None:
            self._add(f"j.line IN ({', '.join(map(str, self._lines))})")
        if filter.reason:
            self._add(f"j.stage = 5 AND {self._field('reason')} IN ({_marks(filter.reason)})", *sorted(filter.reason))
        if filter.fingerprint:
            known = f"{self._field('fingerprint')} IN ({_marks(filter.fingerprint)})"
            self._add(f"{_TROUBLED.format('j')} AND {known}", *sorted(filter.fingerprint))
        if filter.suspect:
            self._add(f"{_TROUBLED.format('j')} AND {self._suspect('j')}")
        if filter.worker:
            self._add(f"j.stage = 3 AND j.worker IN ({_marks(filter.worker)})", *sorted(filter.worker))

    def _suspect(self, table: str) -> str:
        return f"{self._field('suspect', table)}{self._sql.number} > 0"

    def _ask_for_the_rest(self) -> None:
        filter = self._filter
        for several in labels_asked(filter):
            texts = [self._finder.label(text) for text in several]
            # A number, not EXISTS: for EXISTS a planner might choose to read all jobs with the label first.
            one = f"SELECT 1 FROM {self._labels} o WHERE o.seq = j.seq AND o.label IN ({_marks(texts)}) LIMIT 1"
            has = f"({one}) IS NOT NULL"
            spec = self._unlabelled(several)
            if spec is None:
                self._add(has, *texts)
            else:
                self._add(f"{has} OR {spec} IN ({_marks(several)})", *texts, *(text[1:] for text in several))
        for edge, sign in ((filter.created_before, "<"), (filter.created_after, ">=")):
            if edge is not None:
                self._add(f"{self._sql.created} {sign} ?", micros(edge))
        for edge, sign in ((filter.finished_before, "<"), (filter.finished_after, ">=")):
            if edge is not None:
                self._add(f"j.stage >= 4 AND j.finished_at {sign} ?", micros(edge))
        if filter.text is not None:
            term, values = self._finder.text(filter.text.lower())
            self._add(term, *values)

    def _unlabelled(self, labels: Sequence[str]) -> str | None:
        """What such labels stand for in the spec of a job that was stored by a version that does not write them."""
        return {"c": self._sql.customer, "o": self._sql.rerun_of}.get(labels[0][0])

    def _select(self, what: str, source: str, extra: str = "") -> str:
        terms = [*self._terms, *([extra] if extra else [])]
        where = " AND ".join(f"({term})" for term in terms) or "true"
        body = self._sql.body if "b." in where else ""
        return f"SELECT {what} FROM {source}{body} WHERE {where}"

    # -- pages

    def page(self, place: int, most: int) -> Asking[tuple[list[Job], int | None]]:
        """The newest jobs below a place, so many at most; and how far it was looked, if not to the end."""
        parts = yield from self._few(place)
        if parts is not None:
            return (yield from self._of_parts(parts, place, most)), None
        text = self._filter.text is not None
        floor = yield from self._floor(place, LOOK if text else PEEK)
        found = yield from self._window(floor, place, most)
        if floor == 0 or len(found) >= most:
            return found, None
        return (found, floor) if text else ([*found, *(yield from self._beyond(floor, most - len(found)))], None)

    def _window(self, low: int, high: int, most: int) -> Asking[list[Job]]:
        return (yield from self._found(self._sql.by_number, [], "j.seq < ? AND j.seq >= ?", [high, low], most))

    def _floor(self, place: int, most: int) -> Asking[int]:
        """The order number from which on there are so many jobs up to a place; 0: there are fewer."""
        asked = f"SELECT seq FROM {self._jobs} WHERE seq < ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
        rows = yield asked, [place, most - 1]
        return rows[0][0] if rows else 0

    def _beyond(self, place: int, most: int) -> Asking[list[Job]]:
        """The newest jobs below a place, where candidates are many, but not among the newest jobs."""
        filter = self._filter
        until = filter.created_before or filter.finished_before  # what has finished was created before that
        choices = self._choices()
        ordered = [parts for parts in choices if all(part.ordered for part in parts)]
        if until is None and ordered:
            return (yield from self._of_parts(ordered[0], place, most))
        if until is not None or filter.created_after is not None:
            return (yield from self._of_blocks(self._blocks_of_time(until), self._sql.time_shift, place, most))
        if self._lines is not None:
            return (yield from self._of_blocks(self._blocks_of_lines, self._sql.line_shift, place, most))
        if choices and Status.COMPLETED not in self._among and filter.finished_after is None:
            return (yield from self._of_parts(choices[0], place, most))
        return (yield from self._found(self._sql.by_number, [], "j.seq < ?", [place], most))

    def _found(self, source: str, before: list[Any], extra: str, after: list[Any], most: int) -> Asking[list[Job]]:
        """Jobs of a source that match, newest first."""
        if self._filter.text is None:
            return (yield from self._records(source, [*before, *self._values, *after, most], extra))
        # The store may find more by text than matches, so each is tested again.
        found, place, chunk = list[Job](), NEWEST, most
        extra = f"{extra} AND j.seq < ?"
        while len(found) < most:
            jobs = yield from self._records(source, [*before, *self._values, *after, place, chunk], extra)
            found += [job for job in jobs if matches(job, self._filter, self._now)]
            if len(jobs) < chunk:
                break
            place, chunk = jobs[-1].seq, 1000
        return found[:most]

    def _records(self, source: str, values: list[Any], extra: str) -> Asking[list[Job]]:
        # The number by which the source is in order, or it would be sorted.
        seq = "s.seq" if source.startswith("(") else "j.seq"
        asked = f"{self._select(f'{seq} AS seq', source, extra)} ORDER BY {seq} DESC LIMIT ?"
        rows = yield self._sql.page.replace("{found}", asked), values
        return self._finder.read(rows)

    # -- candidates

    def _choices(self) -> list[list[Part]]:
        """Lists of candidates, each of which has all that match."""
        filter, jobs, found = self._filter, self._jobs, list[list[Part]]()
        for several in labels_asked(filter):
            parts = [Part(self._labels, "x.label = ?", [self._finder.label(text)], True) for text in several]
            found.append(parts if self._unlabelled(several) is None else [*parts, self._sql.unlisted])
        if filter.worker:
            found.append([Part(jobs, "x.stage = 3 AND x.worker = ?", [id]) for id in sorted(filter.worker)])
        if filter.fingerprint:
            field = self._field("fingerprint", "x")
            where = f"{_TROUBLED.format('x')} AND {field} IS NOT NULL AND {field} = ?"
            found.append([Part(jobs, where, [one], True) for one in sorted(filter.fingerprint)])
        if filter.suspect:
            found.append([Part(jobs, f"{_TROUBLED.format('x')} AND {self._suspect('x')}")])
        if filter.reason:
            where = f"x.stage = 5 AND {self._field('reason', 'x')} = ?"
            found.append([Part(jobs, where, [one], True) for one in sorted(filter.reason)])
        if filter.status:
            found.append([part for stage in stages_of(self._among) for part in self._in_stage(stage)])
        if filter.finished_after is not None or filter.finished_before is not None:
            found.append(self._finished())
        return found

    def _in_stage(self, stage: int) -> list[Part]:
        if stage in (-1, 1, 2, 3):
            return [Part(self._jobs, f"x.stage = {stage}")]
        statuses = [status for status in sorted(self._among) if stages_of([status]) == [stage]]
        where = f"x.stage {'>= 4' if stage == 4 else f'= {stage}'} AND x.status = ?"
        return [Part(self._jobs, where, [status], stage in self._sql.by_status) for status in statuses]

    def _finished(self) -> list[Part]:
        where, values = "x.stage >= 4 AND x.status = ?", list[Any]()
        for edge, sign in ((self._filter.finished_before, "<"), (self._filter.finished_after, ">=")):
            if edge is not None:
                where, values = f"{where} AND x.finished_at {sign} ?", [*values, micros(edge)]
        among = [status for status in sorted(ENDED) if not self._among or status in self._among]
        return [Part(self._jobs, where, [status, *values]) for status in among]

    def _few(self, place: int) -> Asking[list[Part] | None]:
        """The shortest list of candidates below a place, if it is short enough to be sorted."""
        best, least = None, FEW
        for parts in self._choices():
            size = 0
            for part in parts:
                seq, order = ("x.seq", " ORDER BY x.seq DESC") if part.ordered else ("+x.seq", "")
                asked = f"SELECT 1 FROM {part.table} x WHERE {part.where} AND {seq} < ?{order} LIMIT ?"
                counted = f"SELECT count(*) FROM ({asked}) found"
                rows = yield counted, [*part.values, place, least]
                size += rows[0][0]
                if size >= least:
                    break
            if size < least:
                best, least = parts, size
        return best

    def _of_parts(self, parts: Sequence[Part], place: int, most: int) -> Asking[list[Job]]:
        found = list[Job]()
        for part in parts:
            found += yield from self._found(self._source(part), [*part.values, place], "true", [], most)
        return sorted(found, key=lambda job: -job.seq)[:most]

    def _source(self, part: Part) -> str:
        """The tables for the jobs among these candidates below a place."""
        # Those that are not in order must not be looked for in the order of their numbers, among all jobs.
        seq, end = ("x.seq", "") if part.ordered else ("+x.seq", self._sql.all_of_them)
        found = f"SELECT x.seq FROM {part.table} x WHERE {part.where} AND {seq} < ?{end}"
        return f"({found}) s {self._sql.join} {self._jobs} j ON j.seq = s.seq"

    # -- blocks

    def _of_blocks(self, blocks: Callable[[int, int], Asked], shift: int, place: int, most: int) -> Asking[list[Job]]:
        """The newest jobs below a place in the blocks that are asked for so, and of those that are in no list."""
        found, apart = list[Job](), (yield from self._of_parts([self._sql.unlisted], place, most))
        last = (place >> shift) + 1
        for size in _rounds():
            rows = yield blocks(last, size)
            ranges = _ranges([row[0] for row in rows], shift, place)
            if len(ranges) > _APART:
                found += yield from self._found(self._sql.ranges, [ranges], "true", [], most - len(found))
                ranges = []
            for low, high in ranges:  # where nearly all match, it stops after as many as are wanted
                if len(found) < most:
                    found += yield from self._window(low, high, most - len(found))
            if len(found) >= most or len(rows) < size:
                break
            last = rows[-1][0]
        together = {job.seq: job for job in (*found, *apart)}
        return sorted(together.values(), key=lambda job: -job.seq)[:most]

    def _blocks_of_time(self, until: datetime | None) -> Callable[[int, int], Asked]:
        """What asks for blocks by their time, the last ones first: below which block, how many."""
        since, where, edges = self._filter.created_after, "x.block < ?", list[Any]()
        for edge, sign in ((since, ">="), (until, "<=")):
            if edge is not None:
                where, edges = f"{where} AND x.bucket {sign} ?", [*edges, micros(edge) >> BUCKET]
        table = f"{self._sql.prefix}time_blocks"
        asked = f"SELECT DISTINCT x.block FROM {table} x WHERE {where} ORDER BY x.block DESC LIMIT ?"
        return lambda last, size: (asked, [last, *edges, size])

    def _blocks_of_lines(self, last: int, size: int) -> Asked:
        return self._sql.blocks_of_lines, [self._lines, last, size]

    # -- counts and groups

    def count(self) -> Asking[int]:
        """How many jobs match."""
        if self._filter.text is not None:
            numbers = list[int]()
            yield from self._all(lambda jobs: numbers.append(len(jobs)))
            return sum(numbers)
        choices = self._choices()
        parts = (yield from self._few(NEWEST)) or (choices[0] if choices else None)
        if parts is None:
            return (yield from self._number(f"{self._jobs} j", []))
        total = 0
        for part in parts:
            total += yield from self._number(self._source(part), [*part.values, NEWEST])
        return total

    def _number(self, source: str, before: list[Any]) -> Asking[int]:
        rows = yield self._select("count(*)", source), [*before, *self._values]
        number: int = rows[0][0]
        return number

    def _all(self, see: Callable[[Sequence[Job]], None]) -> Asking[None]:
        """Pass on all that match, for questions by text: the store may find more by it than matches."""
        place, most = NEWEST, 1000
        while True:
            found, floor = yield from self.page(place, most)
            see(found)
            if len(found) < most and floor is None:
                return
            place = found[-1].seq if len(found) == most or floor is None else floor

    def failures(self, limit: int) -> Asking[list[FailureGroup]]:
        """The groups of jobs with an error, the largest first."""
        if self._filter.text is not None:
            failed = list[Job]()
            yield from self._all(lambda jobs: failed.extend(job for job in jobs if job.error is not None))
            return grouped(failed, limit)
        known = f"{_TROUBLED.format('j')} AND {self._field('fingerprint')} IS NOT NULL"
        ended_so = "sum(CASE j.status WHEN 'failed' THEN 1 ELSE 0 END)"
        seen = f"coalesce(CAST({self._field('failed_at')} AS bigint), j.finished_at, j.updated_at)"
        what = f"count(*), {ended_so}, min({seen}), max({seen}), max(j.seq)"
        order = "ORDER BY 1 DESC, 5 DESC LIMIT ?"
        by_print = f"{self._select(what, f'{self._jobs} j', known)} GROUP BY {self._field('fingerprint')} {order}"
        old = f"{self._field('fingerprint')} IS NULL AND {self._sql.has_error}"
        ended = f"SELECT x.seq FROM {self._jobs} x WHERE x.stage = 5"
        retried = f"SELECT x.seq FROM {self._jobs} x WHERE x.stage = 1 AND x.status = 'retrying'"
        source = f"({ended} UNION ALL {retried}) s {self._sql.join} {self._jobs} j ON j.seq = s.seq{self._sql.error}"
        by_type = f"{self._select(what, source, old)} GROUP BY {self._sql.task}, {self._sql.error_type} {order}"
        rows = list[Any]()
        for asked in (by_print, by_type):
            rows += yield asked, [*self._values, limit]
        best = sorted((tuple(row) for row in rows), key=lambda row: (-row[0], -row[4]))[:limit]
        newest = {job.seq: job for job in (yield from self._at([row[4] for row in best]))}
        return [
            group_of(newest[seq], jobs, int(ended_badly), moment(first), moment(last))
            for jobs, ended_badly, first, last, seq in best
            if seq in newest
        ]

    def _at(self, seqs: Sequence[int]) -> Asking[list[Job]]:
        if not seqs:
            return []
        asked = f"SELECT j.seq FROM {self._jobs} j WHERE j.seq IN ({', '.join(map(str, seqs))})"
        rows = yield self._sql.page.replace("{found}", asked), []
        return self._finder.read(rows)


_TROUBLED = "{0}.stage <> 4 AND {0}.state IS NOT NULL"
"""Live or ended badly, and no longer as submitted: only such a job has an error, or is suspect."""


def _marks(values: Iterable[Any]) -> str:
    return ", ".join("?" for _ in values)


def _ranges(blocks: Sequence[int], shift: int, place: int) -> list[tuple[int, int]]:
    """The ranges of order numbers of these blocks, the last ones first, up to a place; neighbours are one range."""
    ranges = list[tuple[int, int]]()
    for block in blocks:
        low, high = block << shift, min((block + 1) << shift, place)
        if ranges and ranges[-1][0] == high:
            ranges[-1] = (low, ranges[-1][1])
        else:
            ranges.append((low, high))
    return ranges


def _rounds() -> Iterator[int]:
    yield from _ROUNDS
    while True:
        yield _ROUNDS[-1]
