"""Whether headrace's tables grow while jobs come and go: rounds of submit, drain and prune, sizes after each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.children import ask
from bench.draining import drain
from bench.progress import Progress
from bench.stores import Databases

__all__ = ["Sizes", "churn", "churn_lines", "trend"]

ROUNDS = 10

_SIZES = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
"""


@dataclass(frozen=True)
class Sizes:
    """After a round: how many jobs went through so far, how fast those of the round, and what the files take."""

    jobs: int
    rate: float
    pruned: int
    tables: int
    indexes: int


def churn(stores: Databases, jobs: int) -> list[Sizes]:
    """Put so many jobs through in rounds; a round's jobs are all pruned before the next."""
    found, each = [], jobs // ROUNDS
    progress = Progress(ROUNDS)
    with stores.fresh() as store:
        for turn in range(1, ROUNDS + 1):
            progress.step(f"churn: {turn * each:,} jobs")
            ask("postgres", "headrace", store, "submit", "fill", each, 0)
            rate, _ = drain("postgres", "headrace", store, each)
            pruned = int(ask("postgres", "headrace", store, "prune"))
            [(tables, indexes)] = stores.execute(store, _SIZES)
            found.append(Sizes(turn * each, rate, pruned, tables, indexes))
    progress.done()
    return found


def trend(sizes: list[int]) -> float:
    """How much bigger the second half is than the first: the medians of both, the round that grew the files aside."""
    after = sizes[1:]
    middle = len(after) // 2
    first, second = sorted(after[:middle]), sorted(after[middle:])
    return second[len(second) // 2] / first[len(first) // 2]


def churn_lines(found: list[Sizes]) -> Iterator[str]:
    """The sizes round by round, and their trend."""
    yield "sizes after each round of submit, drain and prune"
    yield f"  {'jobs through':>12}  {'drain, jobs/s':>13}  {'pruned':>9}  {'tables, MB':>10}  {'indexes, MB':>11}"
    for one in found:
        yield (
            f"  {one.jobs:>12,}  {one.rate:>13,.0f}  {one.pruned:>9,}  {one.tables / 1e6:>10.1f}"
            f"  {one.indexes / 1e6:>11.1f}"
        )
    tables, indexes = trend([one.tables for one in found]), trend([one.indexes for one in found])
    yield f"  second half against first: tables {tables:.2f}×, indexes {indexes:.2f}×"
