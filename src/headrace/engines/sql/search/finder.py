"""Finding jobs by a filter, newest first, without reading all of them; the same in every SQL engine.

A filter has candidates (``candidates.py``). Few of them are gathered and sorted. If there are more, the newest jobs are
searched first (``MAX_FIRST_JOBS``): frequent matches are found there. Else candidates are read in their order:

- The index of a label, a reason or a fingerprint has them in the order of their numbers.
- For tasks, queues and ranges of time there are lists of blocks. A block is a range of order numbers. An entry says
  that some of its jobs are in a subqueue, or were created in a span of time. An insert adds few, not one for each
  job.

One query takes several statements. All of them see the store as of one moment: else a job that moves between two of
them would be found twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from headrace.core.job import Job
from headrace.core.query import Filter, Page, as_seen, cursor_of, matches
from headrace.core.stats.failures import UNDONE, FailureGroup, grouped
from headrace.core.status import Status
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.search.candidates import Candidates
from headrace.engines.sql.search.conditions import Terms, marks
from headrace.engines.sql.search.dialect import Asked, Asking, Dialect, Part
from headrace.engines.sql.search.failures import best_groups, groups_of

__all__ = ["BLOCK_SPAN_BITS", "MAX_TEXT_CANDIDATES", "Finder"]

T = TypeVar("T")

MAX_FIRST_JOBS = 3000
"""So many of the newest jobs are searched before an index is read."""
MAX_SECOND_JOBS = 30_000
"""So many more are searched before unordered candidates are gathered."""
MAX_TEXT_CANDIDATES = 5000
"""For a page by text, so many candidates are read; the page may be short, and the next one goes on from there."""
NEWEST = 2**62
"""Behind every order number."""
BLOCK_SPAN_BITS = 29
"""The span of time of a block's entry, as a power of two of microseconds: nine minutes."""

_ROUNDS = (4, 12, 40, 128)
"""How many blocks are read at a time."""
_MAX_SEPARATE_RANGES = 3
"""More ranges than these are read together."""


class Finder:
    """Runs queries for the jobs of a store; each engine has its own."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    async def answer(self, begin: Callable[[], Asking[T]]) -> T:
        """Run all statements of a query as of one moment; a retry begins it again."""
        raise NotImplementedError

    def read(self, rows: Sequence[Any]) -> list[Job]:
        """Return the jobs in the result of ``Dialect.page``."""
        raise NotImplementedError

    def label(self, text: str) -> str:
        """Return a label as it is stored."""
        raise NotImplementedError

    def text(self, text: str) -> Asked:
        """Return the SQL for whether a text, in lower case, may be found in a job."""
        raise NotImplementedError

    def is_storable(self, filter: Filter) -> bool:
        """Return whether the store can contain the texts of a filter."""
        raise NotImplementedError

    async def find(self, filter: Filter, now: datetime, limit: int, cursor: str | None) -> Page[Job]:
        """Return a page of the jobs that match."""
        below = cursor_of(cursor)
        place = NEWEST if below is None else below
        found, floor = await self.answer(lambda: self._page(filter, now, place, limit + 1))
        items = tuple(as_seen(job, now) for job in found[:limit])
        if len(found) > limit:
            return Page(items, str(items[-1].seq) if items else cursor)
        return Page(items, None if floor is None else str(floor))

    async def count(self, filter: Filter, now: datetime, most: int | None) -> int:
        """Return how many jobs match; or this number, if there are more."""
        return await self.answer(lambda: self._count(filter, now, most))

    async def failures(self, filter: Filter, now: datetime, limit: int, among: int | None) -> list[FailureGroup]:
        """Return the groups of those that match and have an error."""
        return await self.answer(lambda: self._failures(filter, now, limit, among))

    def _page(self, filter: Filter, now: datetime, place: int, most: int) -> Asking[tuple[list[Job], int | None]]:
        search = yield from self._search(filter, now)
        return ([], None) if search is None else (yield from search.page(place, most))

    def _count(self, filter: Filter, now: datetime, most: int | None) -> Asking[int]:
        search = yield from self._search(filter, now)
        if search is None:
            return 0
        return (yield from (search.count() if most is None else search.count_up_to(most)))

    def _failures(self, filter: Filter, now: datetime, limit: int, among: int | None) -> Asking[list[FailureGroup]]:
        search = yield from self._search(filter, now)
        return [] if search is None else (yield from search.failures(limit, among))

    def _search(self, filter: Filter, now: datetime) -> Asking[_Search | None]:
        """Return the search for a filter; None: nothing can match."""
        if not self.is_storable(filter):
            return None
        if not (filter.task or filter.queue):
            return _Search(self, filter, now, None)
        terms = [f"{name} IN ({marks(of)})" for name, of in (("p.task", filter.task), ("l.queue", filter.queue)) if of]
        prefix = self.dialect.prefix
        tables = f"{prefix}subqueues l JOIN {prefix}profiles p ON p.id = l.profile"
        asked = f"SELECT l.id FROM {tables} WHERE {' AND '.join(terms)}"
        rows = yield asked, [*sorted(filter.task), *sorted(filter.queue)]
        return _Search(self, filter, now, [row[0] for row in rows]) if rows else None


class _Numbered(NamedTuple):
    """A job that is only counted."""

    seq: int


class _Search:
    """One filter, as of one moment."""

    def __init__(self, finder: Finder, filter: Filter, now: datetime, subqueues: list[int] | None) -> None:
        self._finder, self._filter, self._now, self._subqueues = finder, filter, now, subqueues
        self._sql = finder.dialect
        self._terms = Terms(self._sql, filter, now, subqueues, finder.label, finder.text)
        self._candidates = Candidates(self._terms)
        self._jobs, self._values = self._terms.jobs, self._terms.values
        self._counts = False
        """Whether order numbers are enough, instead of jobs."""

    # -- pages

    def page(self, place: int, most: int) -> Asking[tuple[list[Job], int | None]]:
        """Return the newest jobs below an order number, at most so many; and how far it searched, if not to the end."""
        parts = yield from self._candidates.few(place)
        if parts is not None:
            return (yield from self._of_parts(parts, place, most)), None
        text = self._filter.text is not None
        floor = yield from self._floor(place, MAX_TEXT_CANDIDATES if text else MAX_FIRST_JOBS)
        found = yield from self._window(floor, place, most)
        if floor == 0 or len(found) >= most:
            return found, None
        return (found, floor) if text else ([*found, *(yield from self._beyond(floor, most - len(found)))], None)

    def _window(self, low: int, high: int, most: int) -> Asking[list[Job]]:
        return (yield from self._found(self._sql.by_number, [], "j.seq < ? AND j.seq >= ?", [high, low], most))

    def _floor(self, place: int, most: int) -> Asking[int]:
        """Return the order number from which on there are so many jobs up to another; 0: there are fewer."""
        asked = f"SELECT seq FROM {self._jobs} WHERE seq < ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
        rows = yield asked, [place, most - 1]
        return rows[0][0] if rows else 0

    def _beyond(self, place: int, most: int) -> Asking[list[Job]]:
        """Return the newest jobs below an order number, where candidates are many, but not among the newest jobs."""
        filter = self._filter
        until = filter.created_before or filter.finished_before  # what has finished was created before that
        choices = self._candidates.choices
        ordered = [parts for parts in choices if all(part.ordered for part in parts)]
        if until is None and ordered:
            return (yield from self._of_parts(ordered[0], place, most))
        if until is not None or filter.created_after is not None:
            return (yield from self._of_blocks(self._blocks_of_time(until), self._sql.time_shift, place, most))
        if self._subqueues is not None:
            return (yield from self._of_blocks(self._blocks_of_subqueues, self._sql.subqueue_shift, place, most))
        if choices and Status.COMPLETED not in self._terms.among and filter.finished_after is None:
            # To sort them, all have to be gathered. Where they are very many, they are not far.
            floor = yield from self._floor(place, MAX_SECOND_JOBS)
            found = yield from self._window(floor, place, most)
            if floor == 0 or len(found) >= most:
                return found
            return [*found, *(yield from self._of_parts(choices[0], floor, most - len(found)))]
        return (yield from self._found(self._sql.by_number, [], "j.seq < ?", [place], most))

    def _found(self, source: str, before: list[Any], extra: str, after: list[Any], most: int) -> Asking[list[Job]]:
        """Return jobs of a source that match, newest first."""
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
        asked = f"{self._terms.select(f'{seq} AS seq', source, extra)} ORDER BY {seq} DESC LIMIT ?"
        if self._counts:
            return cast("list[Job]", [_Numbered(row[0]) for row in (yield asked, values)])
        rows = yield self._sql.page.replace("{found}", asked), values
        return self._finder.read(rows)

    def _of_parts(self, parts: Sequence[Part], place: int, most: int) -> Asking[list[Job]]:
        found = list[Job]()
        for part in parts:
            found += yield from self._found(self._candidates.source(part), [*part.values, place], "true", [], most)
        return sorted(found, key=lambda job: -job.seq)[:most]

    # -- blocks

    def _of_blocks(self, blocks: Callable[[int, int], Asked], shift: int, place: int, most: int) -> Asking[list[Job]]:
        """Return the newest jobs below an order number in the blocks of this query."""
        found = list[Job]()
        last = (place >> shift) + 1
        for size in _rounds():
            rows = yield blocks(last, size)
            ranges = _ranges([row[0] for row in rows], shift, place)
            if len(ranges) > _MAX_SEPARATE_RANGES:
                found += yield from self._found(self._sql.ranges, [ranges], "true", [], most - len(found))
                ranges = []
            for low, high in ranges:  # where nearly all match, it stops after as many as are wanted
                if len(found) < most:
                    found += yield from self._window(low, high, most - len(found))
            if len(found) >= most or len(rows) < size:
                break
            last = rows[-1][0]
        return found[:most]

    def _blocks_of_time(self, until: datetime | None) -> Callable[[int, int], Asked]:
        """Return the query for blocks by their time, the last ones first: below which block, how many."""
        since, where, edges = self._filter.created_after, "x.block < ?", list[Any]()
        for edge, sign in ((since, ">="), (until, "<=")):
            if edge is not None:
                where, edges = f"{where} AND x.bucket {sign} ?", [*edges, micros(edge) >> BLOCK_SPAN_BITS]
        table = f"{self._sql.prefix}time_blocks"
        asked = f"SELECT DISTINCT x.block FROM {table} x WHERE {where} ORDER BY x.block DESC LIMIT ?"
        return lambda last, size: (asked, [last, *edges, size])

    def _blocks_of_subqueues(self, last: int, size: int) -> Asked:
        return self._sql.blocks_of_subqueues, [self._subqueues, last, size]

    # -- counts and groups

    def count(self) -> Asking[int]:
        """Return how many jobs match."""
        if self._filter.text is not None:
            numbers = list[int]()
            yield from self._all(lambda jobs: numbers.append(len(jobs)))
            return sum(numbers)
        choices = self._candidates.choices
        parts = (yield from self._candidates.few(NEWEST)) or (choices[0] if choices else None)
        if parts is None:
            return (yield from self._number(f"{self._jobs} j", []))
        total = 0
        for part in parts:
            total += yield from self._number(self._candidates.source(part), [*part.values, NEWEST])
        return total

    def count_up_to(self, most: int) -> Asking[int]:
        """Return how many jobs match, or this number; it reads as much as a page of so many, without the jobs."""
        self._counts, place, total = self._filter.text is None, NEWEST, 0
        while True:
            found, floor = yield from self.page(place, most - total)
            total += len(found)
            if total >= most or floor is None:
                return total
            place = floor

    def _number(self, source: str, before: list[Any]) -> Asking[int]:
        rows = yield self._terms.select("count(*)", source), [*before, *self._values]
        number: int = rows[0][0]
        return number

    def _all(self, see: Callable[[Sequence[Job]], None]) -> Asking[None]:
        """Pass on all that match, for queries by text: the store may find more by it than matches."""
        place, most = NEWEST, 1000
        while True:
            found, floor = yield from self.page(place, most)
            see(found)
            if len(found) < most and floor is None:
                return
            place = found[-1].seq if len(found) == most or floor is None else floor

    def failures(self, limit: int, among: int | None) -> Asking[list[FailureGroup]]:
        """Return the groups of jobs with an error, the largest first."""
        if self._filter.text is not None:
            found = list[Job]()
            yield from self._all(
                lambda jobs: found.extend(job for job in jobs if job.error is not None or job.status in UNDONE)
            )
            return grouped(found, limit, among)
        best = yield from best_groups(self._terms, limit, among)
        return groups_of(best, {job.seq: job for job in (yield from self._at([row[4] for row in best]))})

    def _at(self, seqs: Sequence[int]) -> Asking[list[Job]]:
        if not seqs:
            return []
        asked = f"SELECT j.seq FROM {self._jobs} j WHERE j.seq IN ({', '.join(map(str, seqs))})"
        rows = yield self._sql.page.replace("{found}", asked), []
        return self._finder.read(rows)


def _ranges(blocks: Sequence[int], shift: int, place: int) -> list[tuple[int, int]]:
    """Return the ranges of order numbers of these blocks, the last first, up to a number; neighbours are one range."""
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
